"""The rules a robot lives by, as pure functions of what it knows.

No socket, no thread and no clock: ``takt.client`` applies these rules on a real robot,
``takt.sim`` to thousands of simulated ones, so both starve and refill alike.

- :mod:`~takt.robot.action_queue`: actions by timestep, never one twice; joined by
  :mod:`~takt.robot.blending`, measured by :mod:`~takt.robot.splices`;
- :mod:`~takt.robot.replanning`: when to ask, by what :mod:`~takt.robot.latency` measured;
- :mod:`~takt.robot.guard`: what is never sent;
- :mod:`~takt.robot.contract`: what happens when the server is late, by the table of
  :mod:`~takt.robot.contract_table`, the numbers of :mod:`~takt.robot.contract_rules`, the checks
  of :mod:`~takt.robot.starting` and the motion of :mod:`~takt.robot.holding`;
- :mod:`~takt.robot.interpolation`: commands between two actions.

Start reading at :class:`takt.robot.action_queue.ActionQueue`.
"""
