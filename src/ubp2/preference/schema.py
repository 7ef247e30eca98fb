"""The tables of the label store, as they were and as they are.

Rows are added and never removed, and what was asked and answered is never changed: of a question only whether it is
current, and since which decision, and of a note its value. Triggers hold it for all tables but the notes.
"""

from __future__ import annotations

__all__ = ["ANSWER_AGAIN", "APPLICATION_ID", "CURRENT_ANSWERS", "LATEST", "MIGRATIONS", "NEW_QUERY", "QUERY_COLUMNS"]

APPLICATION_ID = 0x7562706C  # "ubpl"
MIGRATIONS = (
    (
        # A question is (session, position); each content it ever had is a row, at most one of them current.
        """CREATE TABLE queries (
            id INTEGER PRIMARY KEY AUTOINCREMENT,
            session INTEGER NOT NULL,
            position INTEGER NOT NULL,
            fingerprint BLOB NOT NULL,
            current INTEGER NOT NULL CHECK (current IN (0, 1)),
            decision INTEGER NOT NULL,
            strategy TEXT NOT NULL,
            score REAL, -- NULL: not a number
            left_episode INTEGER NOT NULL,
            left_start INTEGER NOT NULL,
            right_episode INTEGER NOT NULL,
            right_start INTEGER NOT NULL,
            length INTEGER NOT NULL,
            obs_dim INTEGER NOT NULL,
            action_dim INTEGER NOT NULL,
            left_obs BLOB NOT NULL, -- float32, little-endian, row by row; and so the other three
            left_action BLOB NOT NULL,
            right_obs BLOB NOT NULL,
            right_action BLOB NOT NULL,
            UNIQUE (session, position, fingerprint)
        ) STRICT""",
        "CREATE UNIQUE INDEX current_query ON queries (session, position) WHERE current",
        """CREATE TABLE answers (
            id INTEGER PRIMARY KEY AUTOINCREMENT,
            query INTEGER NOT NULL REFERENCES queries (id),
            annotator TEXT NOT NULL,
            revision INTEGER NOT NULL,
            label REAL NOT NULL CHECK (label IN (0.0, 0.5, 1.0)),
            weight REAL NOT NULL CHECK (weight >= 0.0),
            seconds REAL,
            answered_at REAL NOT NULL, -- seconds since 1970
            UNIQUE (query, annotator, revision)
        ) STRICT""",
        "CREATE TRIGGER queries_stay BEFORE DELETE ON queries BEGIN SELECT RAISE(ABORT, 'queries are kept'); END",
        "CREATE TRIGGER answers_stay BEFORE DELETE ON answers BEGIN SELECT RAISE(ABORT, 'answers are kept'); END",
        "CREATE TRIGGER answers_last BEFORE UPDATE ON answers BEGIN SELECT RAISE(ABORT, 'answers are kept'); END",
    ),
    (
        # People: a key makes a repeated answer one answer, and what was undone is a row that says so.
        "ALTER TABLE answers ADD COLUMN key TEXT",
        "ALTER TABLE answers ADD COLUMN swapped INTEGER NOT NULL DEFAULT 0 CHECK (swapped IN (0, 1))",
        "ALTER TABLE answers ADD COLUMN withdrawn INTEGER NOT NULL DEFAULT 0 CHECK (withdrawn IN (0, 1))",
        "ALTER TABLE answers ADD COLUMN reason TEXT",
        "CREATE UNIQUE INDEX answer_key ON answers (key) WHERE key IS NOT NULL",
        # What every annotator says now.
        """CREATE VIEW standing AS SELECT * FROM answers a WHERE NOT a.withdrawn AND NOT EXISTS (
            SELECT 1 FROM answers later WHERE later.query = a.query AND later.annotator = a.annotator
            AND later.revision > a.revision)""",
        # Questions asked again of the same person, to see whether the answer is the same; never labels.
        """CREATE TABLE checks (
            id INTEGER PRIMARY KEY AUTOINCREMENT,
            query INTEGER NOT NULL REFERENCES queries (id),
            annotator TEXT NOT NULL,
            label REAL NOT NULL CHECK (label IN (0.0, 0.5, 1.0)),
            weight REAL NOT NULL CHECK (weight >= 0.0),
            seconds REAL,
            swapped INTEGER NOT NULL CHECK (swapped IN (0, 1)),
            key TEXT NOT NULL UNIQUE,
            answered_at REAL NOT NULL
        ) STRICT""",
        "CREATE TRIGGER checks_stay BEFORE DELETE ON checks BEGIN SELECT RAISE(ABORT, 'checks are kept'); END",
        "CREATE TRIGGER checks_last BEFORE UPDATE ON checks BEGIN SELECT RAISE(ABORT, 'checks are kept'); END",
        # What the trainer tells whoever shows the page; the newest value of a name counts.
        "CREATE TABLE notes (name TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT",
    ),
    (
        # Labels of other runs: their questions have sessions below 0, and here is where they were asked.
        """CREATE TABLE origins (
            query INTEGER PRIMARY KEY REFERENCES queries (id),
            run TEXT NOT NULL,
            decision INTEGER NOT NULL,
            session INTEGER NOT NULL,
            position INTEGER NOT NULL
        ) STRICT""",
        "CREATE TRIGGER origins_stay BEFORE DELETE ON origins BEGIN SELECT RAISE(ABORT, 'origins are kept'); END",
    ),
    (
        # Only `current` and `decision` of a question follow the course of the run.
        """CREATE TRIGGER queries_last BEFORE UPDATE OF id, session, position, fingerprint, strategy, score,
            left_episode, left_start, right_episode, right_start, length, obs_dim, action_dim, left_obs, left_action,
            right_obs, right_action ON queries BEGIN SELECT RAISE(ABORT, 'queries are kept'); END""",
        "CREATE TRIGGER origins_last BEFORE UPDATE ON origins BEGIN SELECT RAISE(ABORT, 'origins are kept'); END",
    ),
)

QUERY_COLUMNS = (
    "q.fingerprint, q.length, q.obs_dim, q.action_dim, q.left_obs, q.left_action, q.right_obs, q.right_action, "
    "q.left_episode, q.left_start, q.right_episode, q.right_start, q.score"
)
# A question that is current; the columns from the fingerprint on are what `records.encode` gives.
NEW_QUERY = """
    INSERT INTO queries (session, position, decision, strategy, fingerprint, score, left_episode, left_start,
    right_episode, right_start, length, obs_dim, action_dim, left_obs, left_action, right_obs, right_action, current)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 1)"""
# The view of the answers as it was when answer :up_to had just been given.
CURRENT_ANSWERS = """
    FROM answers a JOIN queries q ON q.id = a.query
    WHERE q.current AND NOT a.withdrawn AND a.id > :after AND a.id <= :up_to AND q.decision <= :up_to_decision
    AND NOT EXISTS (
        SELECT 1 FROM answers later WHERE later.query = a.query AND later.annotator = a.annotator
        AND later.revision > a.revision AND later.id <= :up_to)"""
# What was said last to some questions is said once more, as new answers: a reader may be past their ids. The key still
# begins as it did, so that an answer that came from another machine is not sent back there as a newer one.
ANSWER_AGAIN = """
    INSERT INTO answers
    (query, annotator, revision, label, weight, seconds, answered_at, swapped, withdrawn, reason, key)
    SELECT query, annotator, max(revision) + 1, label, weight, seconds, answered_at, swapped, withdrawn, reason,
    key || '~' || (max(revision) + 1)
    FROM answers WHERE query IN ({questions}) GROUP BY query, annotator ORDER BY id"""
LATEST = 2**63 - 1
