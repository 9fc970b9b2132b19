"""The scheduler keeps its promises whatever robots, clients and drivers do; and the check bites."""

from hypothesis import settings
from tests.core.scheduler_machine import SchedulerMachine

TestScheduler = SchedulerMachine.TestCase
TestScheduler.settings = settings(max_examples=100, stateful_step_count=40)
