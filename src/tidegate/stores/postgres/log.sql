-- The log of core/log.py: each spend remembered, what was spent at t counts no more at exactly t + window.
--
-- A state says which stretch of the entries counts: those of its `series` that are later than `start_us`. Its
-- `used` is the running total at the newest of them (`end_us`), `before` the total of what counts no more. A new
-- series begins where no old entry counts, so old ones need not be gone by then. Spends of one instant are one
-- entry. A spend is kept in the state alone until `log_write`; all of one call are made at one instant, so there
-- is never more than one entry to write.

CREATE OR REPLACE FUNCTION log_holding(INOUT s state, spent bigint, at bigint, since_us bigint)
LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
  s.used := spent;
  s.before := 0;
  s.at_us := at;
  s.busy_since_us := since_us;
  s.series := since_us;
  s.start_us := at - 1;
  s.end_us := at;
END
$$;

-- Leave out what has stopped counting. After a long step back all entries count from now on.
CREATE OR REPLACE FUNCTION log_advance(INOUT s state, l law, now_us bigint)
LANGUAGE plpgsql STABLE AS $$
DECLARE
  at CONSTANT bigint := clock(s.at_us, now_us);
BEGIN
  IF s.used = s.before THEN
    s.at_us := now_us;
  ELSIF at < s.at_us THEN
    s := log_holding(s, s.used - s.before, at, s.busy_since_us + 1);
  ELSE
    s.at_us := at;
    s := log_leave_out(s, at - l.length_us);
  END IF;
END
$$;

-- What is not later than `boundary_us` counts no more.
CREATE OR REPLACE FUNCTION log_leave_out(INOUT s state, boundary_us bigint)
LANGUAGE plpgsql STABLE AS $$
BEGIN
  IF boundary_us <= s.start_us THEN
    RETURN;
  END IF;
  s.start_us := boundary_us;
  IF s.end_us <= boundary_us THEN
    s.before := s.used;
    RETURN;
  END IF;
  s.before := greatest(
    s.before,
    (SELECT e.total FROM entries e
     WHERE e.rule = s.rule AND e.key = s.key AND e.series = s.series AND e.at_us <= boundary_us
     ORDER BY e.at_us DESC LIMIT 1)
  );
END
$$;

CREATE OR REPLACE FUNCTION log_spend(INOUT s state, cost bigint)
LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
  IF cost = 0 THEN
    RETURN;
  ELSIF s.used = s.before THEN
    s := log_holding(s, cost, s.at_us, begun_us(s.at_us, s.busy_since_us));
  ELSE
    s.used := s.used + cost;
    s.end_us := s.at_us;
  END IF;
END
$$;

-- The instant of the entry with which so much has been spent in what counts.
CREATE OR REPLACE FUNCTION log_instant(s state, spent bigint) RETURNS bigint
LANGUAGE plpgsql STABLE AS $$
BEGIN
  RETURN coalesce(
    (SELECT e.at_us FROM entries e
     WHERE e.rule = s.rule AND e.key = s.key AND e.series = s.series
       AND e.at_us > s.start_us AND e.at_us < s.end_us AND e.total >= s.before + spent
     ORDER BY e.at_us LIMIT 1),
    s.end_us
  );
END
$$;

-- The newest entry is in the table, and some that count no more are not: more than are added, so few remain.
CREATE OR REPLACE FUNCTION log_write(s state) RETURNS bigint
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
  IF s.used > s.before THEN
    INSERT INTO entries AS e (rule, key, series, at_us, total)
    VALUES (s.rule, s.key, s.series, s.end_us, s.used)
    ON CONFLICT (rule, key, series, at_us) DO UPDATE SET total = excluded.total
    WHERE e.total <> excluded.total;
  END IF;
  DELETE FROM entries WHERE ctid = ANY (ARRAY(
    SELECT e.ctid FROM entries e
    WHERE e.rule = s.rule AND e.key = s.key AND (e.series, e.at_us) <= (s.series, s.start_us)
    ORDER BY e.series, e.at_us LIMIT 32
  ));
  RETURN 0;
END
$$;

-- Take it out of the entry it made, if that still counts. Changes every later entry.
CREATE OR REPLACE FUNCTION log_give_back(
  INOUT s state, units bigint, receipt_at_us bigint, since_us bigint, OUT returned bigint
) LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  up_to bigint;
  ahead bigint;
BEGIN
  returned := 0;
  IF s.used = s.before OR s.busy_since_us <> since_us OR receipt_at_us <= s.start_us THEN
    RETURN;
  END IF;
  SELECT e.total INTO up_to FROM entries e
  WHERE e.rule = s.rule AND e.key = s.key AND e.series = s.series AND e.at_us = receipt_at_us;
  IF up_to IS NULL THEN
    RETURN;
  END IF;
  ahead := greatest(
    s.before,
    (SELECT e.total FROM entries e
     WHERE e.rule = s.rule AND e.key = s.key AND e.series = s.series AND e.at_us < receipt_at_us
     ORDER BY e.at_us DESC LIMIT 1)
  );
  returned := least(units, up_to - ahead);
  returned := returned - returned % 1000;
  IF returned = up_to - ahead THEN
    DELETE FROM entries e
    WHERE e.rule = s.rule AND e.key = s.key AND e.series = s.series AND e.at_us = receipt_at_us;
    IF receipt_at_us = s.end_us THEN
      s.end_us := coalesce(
        (SELECT max(e.at_us) FROM entries e
         WHERE e.rule = s.rule AND e.key = s.key AND e.series = s.series AND e.at_us < receipt_at_us),
        s.start_us
      );
    END IF;
  END IF;
  IF returned > 0 THEN
    UPDATE entries e SET total = e.total - returned
    WHERE e.rule = s.rule AND e.key = s.key AND e.series = s.series AND e.at_us >= receipt_at_us;
  END IF;
  s.used := s.used - returned;
END
$$;
