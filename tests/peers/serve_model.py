"""Serve a model file over llama.cpp's OpenAI-compatible server: `serve_model.py FILE`. Ends when its input does."""

import os
import sys

import xllamacpp


def main(path: str) -> None:
    params = xllamacpp.CommonParams()
    params.model.path = path
    params.hostnames = ["127.0.0.1"]
    params.port = 0
    params.n_ctx = 4096
    params.n_parallel = 1
    params.n_predict = 200
    # Threads of one model wait for each other by spinning, which is slow wherever they share a core.
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
    server = xllamacpp.Server(params)
    sys.stdout.write(f"serving {server.listening_address}\n")
    sys.stdout.flush()
    sys.stdin.read()
    os._exit(0)  # the server's own end waits for its clients


if __name__ == "__main__":
    main(sys.argv[1])
