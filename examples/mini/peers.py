"""Several training processes that share each batch, so that no core waits for another within one.

Threads inside one process meet at the end of every operation; on cores that also do something else
they wait for each other all the time. Processes meet once per batch.
"""

import socket
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, distributed, multiprocessing

HOST = "127.0.0.1"


class Peers:
    """The processes of one training run.

    Args:
        rank: Number of this one, from 0. Number 0 writes files.
        count: How many there are.
    """

    def __init__(self, rank: int = 0, count: int = 1) -> None:
        self.rank, self.count = rank, count

    def average(self, tensors: Sequence[Tensor], flag: bool) -> bool:
        """Replace the gradients of tensors by their mean over the processes.

        Args:
            tensors: The same ones, in the same order, in every process.
            flag: What this process wants to tell the others.

        Returns:
            Whether the flag is up in any of them.
        """
        if self.count == 1:
            return flag
        gradients = [tensor.grad for tensor in tensors if tensor.grad is not None]
        flat = torch.cat([*(gradient.flatten() for gradient in gradients), torch.tensor([flag])])
        distributed.all_reduce(flat)
        flat /= self.count
        start = 0
        for gradient in gradients:
            gradient.copy_(flat[start : start + gradient.numel()].view_as(gradient))
            start += gradient.numel()
        return bool(flat[-1] > 0)


def run_in_processes(count: int, work: Callable[..., None], *arguments: object) -> None:
    """Call ``work(peers, *arguments)`` in ``count`` processes, of which this is number 0."""
    if count == 1:
        work(Peers(), *arguments)
        return
    with socket.socket() as found:
        found.bind((HOST, 0))
        port = found.getsockname()[1]
    context = multiprocessing.get_context("spawn")
    others = [
        context.Process(target=_join, args=(rank, count, port, work, *arguments), daemon=True)
        for rank in range(1, count)
    ]
    for other in others:
        other.start()
    _join(0, count, port, work, *arguments)
    for other in others:
        other.join()


def _join(rank: int, count: int, port: int, work: Callable[..., None], *arguments: object) -> None:
    distributed.init_process_group(
        "gloo", init_method=f"tcp://{HOST}:{port}", rank=rank, world_size=count
    )
    try:
        work(Peers(rank, count), *arguments)
    finally:
        distributed.destroy_process_group()
