"""The tables of the journal, as migrations by number. ``PRAGMA user_version`` says how many have been applied.

A migration that has left this house is never edited: a change is a new one at the end. A file of a later version is
refused, not guessed at.
"""

from __future__ import annotations

import apsw

OPEN_EFFECT = "(state = 'unknown' AND read_only = 0 AND closed_ms IS NULL)"
"""In SQL, word for word that of the index `calls_effects`."""
MIGRATIONS = (
    """
    -- One row. `events` below `first_seq` have been pruned; `anchor` is the hash of the last of them.
    CREATE TABLE log (
        one INTEGER PRIMARY KEY CHECK (one = 1),
        lives INTEGER NOT NULL,
        first_seq INTEGER NOT NULL,
        anchor BLOB NOT NULL
    );
    INSERT INTO log VALUES (1, 0, 1, zeroblob(32));

    CREATE TABLE events (
        seq INTEGER PRIMARY KEY,
        at_ms INTEGER NOT NULL,
        kind TEXT NOT NULL,
        call TEXT,
        run TEXT,
        uid INTEGER,
        data TEXT NOT NULL,
        hash BLOB NOT NULL
    );
    CREATE INDEX events_of_call ON events (call, seq) WHERE call IS NOT NULL;

    -- One row per logical call that had to be remembered before it ran, or that has settled.
    -- state: planned, claimed, sent, accepted, then the delivery of its one result.
    CREATE TABLE calls (
        id TEXT PRIMARY KEY,
        uid INTEGER NOT NULL,
        run TEXT,
        tool TEXT NOT NULL,
        place BLOB,
        said BLOB,
        key TEXT NOT NULL,
        read_only INTEGER NOT NULL,
        deadline_ms INTEGER NOT NULL,
        arguments TEXT,
        state TEXT NOT NULL,
        submitted_ms INTEGER NOT NULL,
        expires_ms INTEGER,
        result BLOB,
        files TEXT,
        output_bytes INTEGER NOT NULL DEFAULT 0
    ) WITHOUT ROWID;
    CREATE UNIQUE INDEX calls_by_place ON calls (place) WHERE place IS NOT NULL;
    CREATE INDEX calls_by_age ON calls (submitted_ms);
    CREATE INDEX calls_open ON calls (id)
        WHERE (result IS NULL AND state IN ('planned', 'claimed', 'sent', 'accepted'));

    -- Processes of this life's workers, for the next life's sweep; a row goes when the kernel has confirmed the end.
    CREATE TABLE workers (
        life INTEGER NOT NULL,
        number INTEGER NOT NULL,
        pid INTEGER NOT NULL,
        start_ticks INTEGER NOT NULL,
        boot_id TEXT NOT NULL,
        groups TEXT NOT NULL,
        PRIMARY KEY (life, number)
    ) WITHOUT ROWID;
    """,
    """
    CREATE INDEX events_of_run ON events (run, seq) WHERE run IS NOT NULL;

    -- state: open, suspended, settled. spec and snapshot: JSON; stop: the stop record as JSON.
    CREATE TABLE runs (
        id TEXT PRIMARY KEY,
        uid INTEGER NOT NULL,
        state TEXT NOT NULL,
        spec TEXT NOT NULL,
        snapshot TEXT,
        stop BLOB,
        opened_ms INTEGER NOT NULL,
        settled_ms INTEGER
    ) WITHOUT ROWID;
    CREATE INDEX runs_settled ON runs (settled_ms) WHERE settled_ms IS NOT NULL;

    -- What tenants, users and sessions have used in a period of theirs. seq: the events up to here are in it.
    CREATE TABLE accounts (
        node TEXT PRIMARY KEY,
        used TEXT NOT NULL,
        period INTEGER NOT NULL,
        at_ms INTEGER NOT NULL,
        seq INTEGER NOT NULL
    ) WITHOUT ROWID;
    """,
    """
    -- Open effects: calls whose outcome nobody saw. `closed`: what somebody has found out, `closed_by` whose uid (NULL:
    -- the daemon itself). `call_fp`: what the call did, in the eyes of its run.
    ALTER TABLE calls ADD COLUMN call_fp TEXT;
    ALTER TABLE calls ADD COLUMN closed TEXT;
    ALTER TABLE calls ADD COLUMN closed_ms INTEGER;
    ALTER TABLE calls ADD COLUMN closed_by INTEGER;
    CREATE INDEX calls_effects ON calls (submitted_ms)
        WHERE (state = 'unknown' AND read_only = 0 AND closed_ms IS NULL);
    """,
    """
    -- One row per question to a person. state: asking, then a word of core/approvals.State. `checkpoint`: what was
    -- frozen, as the bytes whose digest stands in the event `approval_asked`.
    CREATE TABLE approvals (
        id TEXT PRIMARY KEY,
        uid INTEGER NOT NULL,
        run TEXT,
        call TEXT NOT NULL,
        state TEXT NOT NULL,
        asked_ms INTEGER NOT NULL,
        expires_ms INTEGER NOT NULL,
        checkpoint BLOB NOT NULL,
        version INTEGER NOT NULL DEFAULT 1,
        scope TEXT NOT NULL DEFAULT 'call',
        decided_by INTEGER,
        decided_ms INTEGER,
        note TEXT NOT NULL DEFAULT '',
        arguments TEXT,
        executed TEXT
    ) WITHOUT ROWID;
    CREATE INDEX approvals_by_age ON approvals (asked_ms);
    """,
    """
    -- The number, within the run, of the last event that was taken out of the log while the run went on or waited.
    ALTER TABLE runs ADD COLUMN pruned INTEGER NOT NULL DEFAULT 0;
    CREATE INDEX accounts_by_age ON accounts (at_ms);
    """,
)


class NewerJournalError(Exception):
    """The file was written by a later version of the product."""


def migrate(connection: apsw.Connection) -> None:
    """Bring a journal up to date, each migration in a transaction of its own. Raises NewerJournalError, apsw.Error."""
    version = connection.pragma("user_version")
    assert isinstance(version, int)
    if version > len(MIGRATIONS):
        raise NewerJournalError(f"its tables have version {version}; this deadlined knows {len(MIGRATIONS)}")
    for number, statements in enumerate(MIGRATIONS[version:], version + 1):
        with connection:
            connection.execute(statements)
            connection.pragma("user_version", number)
