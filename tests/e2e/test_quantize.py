"""`sluice quantize` end to end: a model goes through it, is killed at five places and goes on to the same bytes, and still speaks."""
import hashlib, json, os, signal, subprocess, sys, tempfile, time

binary, model = sys.argv[1:3]
folder = tempfile.mkdtemp()
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
    written = 0
    deadline = time.time() + 240
    while written < place and p.poll() is None and time.time() < deadline:
        try:
            with open(killed + ".journal") as f:
                written = f.read().count("\n") - 1
        except FileNotFoundError:
            pass
        time.sleep(0.002)
    assert p.poll() is None, f"ended before {place} tensors were written"
    os.kill(p.pid, signal.SIGKILL)
    p.wait()
    assert not os.path.exists(killed) and os.path.exists(killed + ".part"), place
report = quantize(killed)
assert report["resumed"], report
assert digest(killed) == digest(whole)
assert sorted(os.listdir(folder)) == ["killed.gguf", "text.txt", "whole.gguf"], os.listdir(folder)

# Refused, and how: a line that says what to do.
p = subprocess.run([binary, "quantize", model, os.path.join(folder, "no.gguf"), "--type", "q8_0"], capture_output=True, text=True)
assert p.returncode == 2 and "--requantize" in p.stderr and p.stderr.count("\n") == 1, p.stderr

p = subprocess.run([binary, "run", whole, "-p", "The capital of France is", "--max-tokens", "8", "--temperature", "0", "--json"], capture_output=True, text=True, timeout=120)
assert p.returncode == 0 and "Paris" in json.loads(p.stdout)["text"], p.stdout + p.stderr
print("ok")
