# SPDX-License-Identifier: Apache-2.0
"""How much of the machine others took while something was measured."""
import os
import time

TICK = os.sysconf("SC_CLK_TCK")


class Disturbance:
    """Counts from when it is made."""

    def __init__(self):
        self.start, self.busy, self.own = time.monotonic(), self._busy(), self._own()

    @staticmethod
    def _busy():
        """Seconds of all processors that were not idle; steal is time that the host took away."""
        with open("/proc/stat", encoding="ascii") as file:
            user, nice, system, _, _, irq, softirq, steal = map(int, file.readline().split()[1:9])
        return (user + nice + system + irq + softirq + steal) / TICK

    @staticmethod
    def _own():
        times = os.times()
        return times.user + times.system + times.children_user + times.children_system

    def share(self):
        """Of all processors' time, 0 to 1. Children count once they have been waited for."""
        others = self._busy() - self.busy - (self._own() - self.own)
        return max(0.0, others / ((time.monotonic() - self.start) * os.cpu_count()))


def wait_until_quiet(most, patience):
    """Until others take at most that share; gives up after `patience` seconds."""
    end = time.monotonic() + patience
    while time.monotonic() < end:
        disturbance = Disturbance()
        time.sleep(2)
        if disturbance.share() <= most:
            return
