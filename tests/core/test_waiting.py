"""Notices of servers that keep everybody waiting."""

from __future__ import annotations

import asyncio

import pytest

from corag.core.servers import StallNotifier


async def test_notices_come_at_growing_intervals_and_while_nobody_is_answered(
    capsys: pytest.CaptureFixture[str],
) -> None:
    silence = StallNotifier("http://a", first_notice_s=0.1)
    with silence.waiting() as heard, silence.waiting():
        for _ in range(4):  # one is answered again and again, the other is not
            await asyncio.sleep(0.05)
            heard()
        assert not capsys.readouterr().err
        await asyncio.sleep(0.9)
        lines = capsys.readouterr().err.splitlines()
        assert len(lines) == 4, "after 1, 2, 4 and 8 times as long"
        assert all(line.startswith("corag: waiting for http://a: no reply for ") for line in lines)
        heard()
        heard()
        assert capsys.readouterr().err == "corag: http://a replies again, after 1 s.\n"
    await asyncio.sleep(0.2)
    assert not capsys.readouterr().err, "nobody waits"
    with silence.waiting():
        await asyncio.sleep(0.05)
    assert not capsys.readouterr().err, "nobody waited before"
