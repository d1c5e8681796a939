"""`sluice quantize` end to end: a model goes through it, is killed at five places and goes on to the same bytes, and still speaks."""
import hashlib, json, os, signal, subprocess, sys, tempfile, time

binary, model = sys.argv[1:3]
temporary = tempfile.TemporaryDirectory()  # for as long as this runs
folder = temporary.name
text = os.path.join(folder, "text.txt")
with open(text, "w") as f:
    for i in range(400):
        f.write(f"Sentence {i} says that a river carries {i * 7 % 13} boats, and that nobody has counted the rest of them. ")


def command(out, *flags):
    return [binary, "quantize", model, out, "--requantize", "--threads", "2", "--json", "--type", "q4_k_m", "--calibrate", text, "--window", "128", "--max-tokens", "256", *flags]


def quantize(out, *flags):
    p = subprocess.run(command(out, *flags), capture_output=True, text=True, timeout=300)
    assert p.returncode == 0, p.stderr
    return json.loads(p.stdout)


def digest(path):
    with open(path, "rb") as f:
        return hashlib.sha256(f.read()).hexdigest()


def kill_after(process, journal, place):
    written, deadline = 0, time.time() + 240
    while written < place and process.poll() is None and time.time() < deadline:
        try:
            with open(journal) as f:
                written = f.read().count("\n") - 1
        except FileNotFoundError:
            pass
        time.sleep(0.002)
    assert process.poll() is None, f"ended before {place} tensors were written"
    os.kill(process.pid, signal.SIGKILL)
    process.wait()


whole = os.path.join(folder, "whole.gguf")
report = quantize(whole)
for key in ("in_bytes", "out_bytes", "bits_per_weight", "seconds", "method"):
    assert key in report, report
assert report["method"] == "imatrix" and report["out_bytes"] == os.path.getsize(whole) and not report["resumed"], report

# Killed when so many tensors are written, then once more: what is done is not done again, and the bytes are the same.
killed = os.path.join(folder, "killed.gguf")
places = (1, 40, 100, 170, 260)
for place in places:
    p = subprocess.Popen(command(killed), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    kill_after(p, killed + ".journal", place)
    assert not os.path.exists(killed) and os.path.exists(killed + ".part"), place
report = quantize(killed)
assert report["resumed"], report
assert digest(killed) == digest(whole)
assert sorted(os.listdir(folder)) == ["killed.gguf", "text.txt", "whole.gguf"], os.listdir(folder)

# A folder goes on in the same way. Two layers are enough; the others stay as they are.
def folder_command(out, *flags):
    return [binary, "quantize", model, out, "--requantize", "--threads", "2", "--json", "--type", "gptq4", "--calibrate", text, "--window", "128", "--max-tokens", "128",
            "--keep", r"blk\.(?!0\.|1\.).*=f16", *flags]


def finish(out):
    p = subprocess.run(folder_command(out), capture_output=True, text=True, timeout=300)
    assert p.returncode == 0, p.stderr
    return json.loads(p.stdout)


def digests(path):
    return {f: digest(os.path.join(path, f)) for f in os.listdir(path)}


assert not finish(os.path.join(folder, "whole"))["resumed"]
killed = os.path.join(folder, "killed")
for place in (2, 9, 20, 40, 120):
    p = subprocess.Popen(folder_command(killed), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    kill_after(p, os.path.join(killed, "model.safetensors.journal"), place)
    assert not os.path.exists(os.path.join(killed, "config.json")) and os.path.exists(os.path.join(killed, "model.safetensors.part")), place
assert finish(killed)["resumed"]
assert digests(killed) == digests(os.path.join(folder, "whole"))

# Refused, and how: a line that says what to do.
p = subprocess.run([binary, "quantize", model, os.path.join(folder, "no.gguf"), "--type", "q8_0"], capture_output=True, text=True)
assert p.returncode == 2 and "--requantize" in p.stderr and p.stderr.count("\n") == 1, p.stderr

p = subprocess.run([binary, "run", whole, "-p", "The capital of France is", "--max-tokens", "8", "--temperature", "0", "--json"], capture_output=True, text=True, timeout=120)
assert p.returncode == 0 and "Paris" in json.loads(p.stdout)["text"], p.stdout + p.stderr
print("ok")
