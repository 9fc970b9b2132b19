"""The rules a robot lives by, as pure functions of what it knows.

No socket, no thread and no clock: ``takt.client`` applies these rules on a real robot,
``takt.sim`` to thousands of simulated ones, so both starve and refill alike.

Start reading at :class:`takt.robot.action_queue.ActionQueue`.
"""
