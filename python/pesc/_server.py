"""The HTTP server of the library, on a thread of the Python process."""

import threading

from . import _c
from ._c import lib
from ._handles import Handle, Model, _opened
from ._options import Options


class Server(Handle):
    """A server with OpenAI's interface and the page, of a model or of a path that is then opened. It answers from start()
    until close(), or in a `with` block; log(line) receives a line for each request. The options are those of
    pesc.options("serve"); port=0 takes a free one."""

    def __init__(self, model, device="auto", log=None, **options):
        self.model = model if isinstance(model, Model) else Model(model, device)
        self._options, self._thread, self._failure = Options("serve", options), None, []
        if log:
            self._options.call_back(_c.LOG(lambda _, line: log(line.decode(errors="replace"))))
        super().__init__(_opened(lib.pesc_server_open, self.model.handle, self._options.pointer), lib.pesc_server_close)
        host = options.get("host") or "127.0.0.1"
        self.url = f"http://{f'[{host}]' if ':' in host else host}:{self.port}"

    @property
    def port(self):
        return lib.pesc_server_port(self.handle)

    def start(self):
        def run():
            try:
                lib.pesc_server_run(self._pointer)
            except _c.Error as error:
                self._failure.append(error)
        if self._thread is None:
            self._thread = threading.Thread(target=run, daemon=True)
            self._thread.start()
        return self

    def wait(self):
        """Until the server ends: it failed, or was closed by another thread."""
        while self._thread and self._thread.is_alive():
            self._thread.join(0.2)  # so that Ctrl-C is noticed
        if self._failure:
            raise self._failure.pop()

    def close(self):
        """Lets running requests end, and stops."""
        if self._thread:
            lib.pesc_server_stop(self._pointer)
            self._thread.join()
            self._thread = None
        super().close()

    def __enter__(self):
        return self.start()


def serve(model, device="auto", log=print, **options):
    """Serves a model until Ctrl-C."""
    with Server(model, device, log, **options) as server:
        log(f"{server.url}/")
        try:
            server.wait()
        except KeyboardInterrupt:
            pass
