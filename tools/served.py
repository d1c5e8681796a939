"""A server for measurements: started on a free port, ready when made, ended with its block."""
import json, socket, subprocess, sys, time, urllib.request


class Served:
    def __init__(self, command, environment):
        """command: of a port, what to run. Whatever answers /health with 200 will do."""
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            port = s.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        self.process = subprocess.Popen(list(map(str, command(port))), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment)
        for _ in range(600):
            try:
                if urllib.request.urlopen(self.url + "/health", timeout=2).status == 200:
                    return
            except OSError:
                time.sleep(0.1)
        self.process.kill()
        sys.exit("the server is not ready")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()

    def complete(self, **body):
        request = urllib.request.Request(self.url + "/v1/completions", json.dumps(body).encode(), {"Content-Type": "application/json"})
        return json.load(urllib.request.urlopen(request, timeout=600))

    def metrics(self, prefix):
        """The lines of /metrics that begin so."""
        return [line for line in urllib.request.urlopen(self.url + "/metrics").read().decode().splitlines() if line.startswith(prefix)]
