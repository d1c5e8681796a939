"""Starts a server for end-to-end tests and speaks to it over raw HTTP."""
import atexit, http.client, json, os, re, signal, subprocess, sys, time


class Server:
    def __init__(self, *flags):
        binary, model = sys.argv[1:3]
        self.process = subprocess.Popen([binary, "serve", model, "--port", "0", "--name", "smollm2", *flags],
                                        stderr=subprocess.PIPE, text=True, env={"SLUICE_STORE": "none", **os.environ})
        atexit.register(self.process.kill)  # a test that fails leaves nothing that runs, and holds its output open
        for line in self.process.stderr:
            if match := re.match(r"ready http://([\d.]+):(\d+)", line):
                self.host, self.port = match[1], int(match[2])
                break
        else:
            raise RuntimeError("the server ended before it was ready")
        self.url = f"http://{self.host}:{self.port}"

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        try:
            status = self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise
        assert status == 0, f"the server ended with {status}"

    def request(self, method, path, body=None, headers=None, timeout=120):
        """Returns (status, headers, parsed or raw body)."""
        connection = http.client.HTTPConnection(self.host, self.port, timeout=timeout)
        data = body if isinstance(body, (bytes, type(None))) else json.dumps(body).encode()
        connection.request(method, path, data, {"Content-Type": "application/json", **(headers or {})})
        response = connection.getresponse()
        raw = response.read()
        connection.close()
        try:
            return response.status, response.headers, json.loads(raw)
        except ValueError:
            return response.status, response.headers, raw

    def post(self, path, body, **kw):
        return self.request("POST", path, body, **kw)

    def complete(self, prompt, **fields):
        status, _, reply = self.post("/v1/completions", {"model": "smollm2", "prompt": prompt, **fields})
        assert status == 200, reply
        return reply

    def metric(self, name):
        _, _, text = self.request("GET", "/metrics")
        for line in (text if isinstance(text, str) else text.decode()).splitlines():
            if match := re.match(re.escape(name) + r"(?:\{[^}]*\})? (\S+)$", line):
                return float(match[1])
        raise AssertionError(f"no metric {name}")

    def wait_idle(self):
        for _ in range(200):
            if self.metric("sluice_kv_blocks_held") == 0 and self.metric("sluice_requests_running") == 0:
                return
            time.sleep(0.05)
        raise AssertionError("blocks are held though nobody asks")
