-- State carried across a changed limit, as core/carry.py: a change neither refills a key nor forgives a debt.
--
-- Products of two limits' numbers can pass 2^63, so these, and only these, are numeric.

-- Whether a state must be carried over: bucket, meter and line of the same numbers share it.
CREATE OR REPLACE FUNCTION is_change(s state, l law) RETURNS boolean
LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
  IF s.kind = 'L' AND l.kind = 'L' THEN
    RETURN s.room <> l.room OR s.q <> l.q OR s.p <> l.p;
  END IF;
  RETURN s.kind <> l.kind OR s.room <> l.room OR s.length_us IS DISTINCT FROM l.length_us
    OR s.parts IS DISTINCT FROM l.parts OR s.calendar IS DISTINCT FROM l.calendar;
END
$$;

-- What is used under the new limit. `how`: 1 strict, 2 keep_level, 3 keep_tokens, 4 proportional, 5 reset.
CREATE OR REPLACE FUNCTION carried(spent bigint, capacity_before bigint, capacity_after bigint, how bigint)
RETURNS bigint LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
  RETURN CASE how
    WHEN 1 THEN greatest(spent, capacity_after - greatest(0, capacity_before - spent))
    WHEN 2 THEN spent
    WHEN 3 THEN greatest(0, capacity_after - (capacity_before - spent))
    WHEN 4 THEN div(spent::numeric * capacity_after + (capacity_before - 1), capacity_before)
    ELSE 0
  END;
END
$$;

-- The level after draining at the smaller of the two rates: what is used then, and the instant.
CREATE OR REPLACE FUNCTION drained_slowly(
  s state, l law, now_us bigint, OUT spent bigint, OUT at bigint
) LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
  IF s.p::numeric * l.q <= l.p::numeric * s.q THEN
    s := level_advance(s, now_us);
  ELSE
    s := level_advance(holding(s, l, used_of(s), s.at_us, s.busy_since_us), now_us);
  END IF;
  spent := used_of(s);
  at := s.at_us;
END
$$;

-- The state of a key whose limit has become `l`.
CREATE OR REPLACE FUNCTION carry(INOUT s state, l law, now_us bigint, how bigint)
LANGUAGE plpgsql STABLE AS $$
DECLARE
  since CONSTANT bigint := s.busy_since_us + 1;
  capacity_before CONSTANT bigint := CASE WHEN s.kind = 'L' THEN s.room / (s.q / 1000) ELSE s.room END;
  capacity_after CONSTANT bigint := CASE WHEN l.kind = 'L' THEN l.room / (l.q / 1000) ELSE l.room END;
  its_own law;
  own state;
  spent bigint;
  at bigint;
BEGIN
  its_own.length_us := s.length_us;  -- all that advancing asks of it; a calendar's window does not matter here
  its_own.parts := s.parts;
  own := advance(s, its_own, now_us);
  IF own.used = 0 AND coalesce(own.before, 0) = 0 OR own.kind = 'G' AND own.used = own.before THEN
    s := holding(s, l, 0, own.at_us, since);
    RETURN;
  END IF;
  IF s.kind = 'L' AND l.kind = 'L' THEN
    SELECT d.spent, d.at INTO spent, at FROM drained_slowly(s, l, now_us) d;
  ELSE
    spent := used_of(own);
    at := own.at_us;
  END IF;
  IF s.kind = 'G' AND l.kind = 'G' AND how <= 2 THEN  -- the entries stay, each with its instant
    s := own;
    s.busy_since_us := since;
    s.room := l.room;
    s.length_us := l.length_us;
    s := log_advance(s, l, now_us);
    spent := carried(used_of(s), capacity_before, capacity_after, how) - used_of(s);
    s := log_spend(s, spent);
    RETURN;
  END IF;
  s := holding(s, l, carried(spent, capacity_before, capacity_after, how), at, since);
END
$$;

-- A key that was never charged. For a `strict` charge one that may have been lost counts as used up when the
-- store began to remember (`epoch_us`, null: nothing was ever lost), and has been draining since.
CREATE OR REPLACE FUNCTION unknown(INOUT s state, l law, now_us bigint, epoch_us bigint)
LANGUAGE plpgsql STABLE AS $$
BEGIN
  IF epoch_us IS NULL OR l.edges_us IS NOT NULL AND epoch_us < l.edges_us[1] THEN
    s := holding(s, l, 0, now_us, now_us - 1);
    RETURN;
  END IF;
  s := holding(s, l, CASE WHEN l.kind = 'L' THEN l.room / (l.q / 1000) ELSE l.room END, epoch_us, epoch_us);
  s := advance(s, l, now_us);
END
$$;

-- The key's state at an instant under a law, carried over if the limit has changed.
CREATE OR REPLACE FUNCTION current_state(INOUT s state, l law, now_us bigint, how bigint, epoch_us bigint)
LANGUAGE plpgsql STABLE AS $$
BEGIN
  IF s.kind IS NULL THEN
    s := unknown(s, l, now_us, epoch_us);
    RETURN;
  ELSIF s.kind = 'N' THEN
    s := holding(s, l, 0, now_us, now_us - 1);
    RETURN;
  ELSIF is_change(s, l) THEN
    s := carry(s, l, now_us, how);
  END IF;
  s := advance(s, l, now_us);
END
$$;
