"""The text against a reader of it that is not ours."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from supervisor.observe.exposition import render
from supervisor.observe.families import Counter, Gauge, Histogram, snapshot
from tests.supervisor.observe.conftest import Log


def test_what_is_written_reads_back_as_it_was_whatever_a_label_holds() -> None:
    nasty = 'a"b\\c\nd{e="f"} 1 # é\u2028'
    counter, gauge = Counter("x_total", 'It "says"\\n.', ("tool", "reason")), Gauge("y", "Y.")
    counter.add(nasty, "none", by=2)
    gauge.set(0.25)
    histogram = Histogram("z_seconds", "Z.", (0.001, 5), ("by",))
    histogram.see(0.0005, "me")
    histogram.see(9, "me")
    text = render([snapshot(one) for one in (counter, gauge, histogram)])
    read = {
        (one.name, *sorted(one.labels.items())): one.value
        for f in text_string_to_metric_families(text)
        for one in f.samples
    }
    assert read == {
        ("x_total", ("reason", "none"), ("tool", nasty)): 2,
        ("y",): 0.25,
        ("z_seconds_bucket", ("by", "me"), ("le", "0.001")): 1,
        ("z_seconds_bucket", ("by", "me"), ("le", "5.0")): 1,
        ("z_seconds_bucket", ("by", "me"), ("le", "+Inf")): 2,
        ("z_seconds_count", ("by", "me")): 2,
        ("z_seconds_sum", ("by", "me")): 9.0005,
    }


def test_every_metric_that_there_is_can_be_written_and_read(log: Log) -> None:
    log("call_ended", "c_1", "r_1", tool="shell", status="ok", reason=None, delivery="succeeded")
    log("run_settled", None, "r_1", status="completed", reason="finish_accepted", calls=3, limits={"steps": 5}, used={})
    snapshots = log.metrics.snapshots()
    families = list(text_string_to_metric_families(render(snapshots)))
    assert [one.type for one in families] == [one.kind for one in snapshots]
    for family, one in zip(families, snapshots, strict=True):
        assert family.name == one.name.removesuffix("_total")
        assert family.documentation == one.says
        assert len(family.samples) == sum(len(s.buckets) + 2 if s.buckets else 1 for s in one.samples)
