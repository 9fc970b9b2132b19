"""Checkpoint directories as LeRobot writes them, read without LeRobot.

No module here imports a network engine, so that a gateway can prepare rows. Nothing read from a
checkpoint is executed: JSON names processor steps from a fixed list, weights are safetensors only.

Start reading at :func:`takt.policies.lerobot.opening.open_checkpoint`.
"""
