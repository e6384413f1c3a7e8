-- The law of core/level.py: one number per key, shared by bucket, meter and line.
--
-- Pure. `decide` says `advance`, `fits` and `spend` once more, in place, for a call costs more than the arithmetic.
-- What a line lets wait is computed by whoever reads the reply; only its verdict needs `hold_us` here.

-- A quotient of numbers that are not negative, rounded up.
CREATE OR REPLACE FUNCTION div_ceil(numerator bigint, denominator bigint) RETURNS bigint
LANGUAGE sql IMMUTABLE AS $$ SELECT (numerator + denominator - 1) / denominator $$;

-- The instant that counts: never before the last one seen, unless the clock stepped back far.
CREATE OR REPLACE FUNCTION clock(at_us bigint, now_us bigint) RETURNS bigint
LANGUAGE sql IMMUTABLE AS $$
  SELECT CASE WHEN now_us >= at_us OR at_us - now_us > 60000000 THEN now_us ELSE at_us END
$$;

-- The name of a busy period that begins at this instant.
CREATE OR REPLACE FUNCTION begun_us(at_us bigint, last_us bigint) RETURNS bigint
LANGUAGE sql IMMUTABLE AS $$ SELECT CASE WHEN at_us > last_us THEN at_us ELSE last_us + 1 END $$;

-- The level after some time; the time is compared before it is multiplied.
CREATE OR REPLACE FUNCTION drained(level bigint, p bigint, elapsed_us bigint) RETURNS bigint
LANGUAGE sql IMMUTABLE AS $$
  SELECT CASE
    WHEN p = 0 OR level = 0 THEN level
    WHEN elapsed_us < (level + p - 1) / p THEN level - p * elapsed_us
    ELSE 0
  END
$$;

CREATE OR REPLACE FUNCTION level_advance(INOUT s state, now_us bigint)
LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
  IF s.used = 0 THEN
    s.at_us := now_us;
    s.given_back := 0;
  ELSIF now_us >= s.at_us THEN
    s.used := drained(s.used, s.p, now_us - s.at_us);
    s.at_us := now_us;
    IF s.used = 0 THEN
      s.given_back := 0;
    END IF;
  ELSIF s.at_us - now_us > 60000000 THEN  -- moved back: what was taken before can no longer be refunded
    s.at_us := now_us;
    s.busy_since_us := s.busy_since_us + 1;
    s.given_back := 0;
  END IF;
END
$$;

-- How long what counts ahead of a job, and perhaps its own length, needs to drain.
CREATE OR REPLACE FUNCTION hold_us(ahead bigint, cost_units bigint, p bigint, own bigint, free bigint)
RETURNS bigint LANGUAGE sql IMMUTABLE AS $$
  SELECT CASE
    WHEN ahead + own * cost_units - free > 0 AND p > 0
    THEN (ahead + own * cost_units - free + p - 1) / p
    ELSE 0
  END
$$;

-- Raise the level by a cost in thousandths, at most to `debt` above the capacity, and never lower it.
CREATE OR REPLACE FUNCTION level_overdraw(INOUT s state, cost bigint, debt bigint)
LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
  exact CONSTANT bigint := 9007199254740991;  -- 2^53 - 1
  grain CONSTANT bigint := s.q / 1000;
  most bigint;
BEGIN
  IF s.used = 0 THEN
    s.busy_since_us := begun_us(s.at_us, s.busy_since_us);
    s.given_back := 0;
  END IF;
  most := CASE WHEN debt > (exact - s.room) / grain THEN exact ELSE s.room + debt * grain END;
  most := greatest(s.used, most);
  s.used := CASE WHEN cost > (most - s.used) / grain THEN most ELSE s.used + cost * grain END;
END
$$;

-- What may come back of a decision's own level (docs/decisions/0011): the units, and the state after.
CREATE OR REPLACE FUNCTION level_give_back(
  INOUT s state, units bigint, cost bigint, receipt_at_us bigint, since_us bigint,
  mark bigint, given_back bigint, own bigint, is_full boolean, OUT returned bigint
) LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
  undrained bigint;
BEGIN
  returned := 0;
  IF s.used = 0 OR s.busy_since_us <> since_us THEN
    RETURN;
  END IF;
  returned := least(units, s.used);
  IF NOT is_full THEN
    undrained := greatest(cost * (s.q / 1000), mark - (s.given_back - given_back - own));
    undrained := drained(undrained, s.p, greatest(0, s.at_us - receipt_at_us)) - own;
    returned := least(returned, greatest(0, undrained));
  END IF;
  s.used := s.used - returned;
  s.given_back := s.given_back + returned;
END
$$;
