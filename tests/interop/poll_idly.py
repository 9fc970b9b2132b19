# pyright: basic, reportMissingImports=false
"""Clients that only poll, with LeRobot's own gRPC stubs. Runs in LeRobot's environment.

Arguments: the server's address and the number of clients. Says ``polling`` when all have begun, and
polls until its standard input ends.
"""

import sys
import threading

import grpc
from lerobot.transport import services_pb2, services_pb2_grpc
from lerobot.transport.utils import grpc_channel_options


def poll(address: str, has_begun: threading.Barrier, is_over: threading.Event) -> None:
    # Otherwise channels of one process share one connection.
    own = [("grpc.use_local_subchannel_pool", 1)]
    channel = grpc.insecure_channel(address, [*grpc_channel_options(), *own])
    stub = services_pb2_grpc.AsyncInferenceStub(channel)
    stub.Ready(services_pb2.Empty())
    has_begun.wait()
    while not is_over.is_set():
        stub.GetActions(services_pb2.Empty())
    channel.close()


def main() -> None:
    address, count = sys.argv[1], int(sys.argv[2])
    has_begun, is_over = threading.Barrier(count + 1), threading.Event()
    for _ in range(count):
        threading.Thread(target=poll, args=(address, has_begun, is_over), daemon=True).start()
    has_begun.wait()
    sys.stdout.write("polling\n")
    sys.stdout.flush()
    sys.stdin.read()
    is_over.set()


if __name__ == "__main__":
    main()
