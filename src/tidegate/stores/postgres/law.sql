-- What every law answers (core/law.py): each function here asks the law that a state or a charge names.
--
-- Costs and `used` are thousandths. States that are passed in were advanced to the instant meant.

-- A fresh key, or one in which so much counts as spent at the instant.
CREATE OR REPLACE FUNCTION holding(INOUT s state, l law, spent bigint, at bigint, since_us bigint)
LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
  exact CONSTANT bigint := 9007199254740991;  -- 2^53 - 1
BEGIN
  s.kind := l.kind;
  s.room := l.room;
  s.q := l.q;
  s.p := l.p;
  s.length_us := l.length_us;
  s.parts := l.parts;
  s.calendar := l.calendar;
  s.used := 0;
  s.before := NULL;
  s.given_back := NULL;
  s.start_us := NULL;
  s.end_us := NULL;
  CASE l.kind
    WHEN 'L' THEN
      s.used := CASE WHEN spent > exact / (l.q / 1000) THEN exact ELSE spent * (l.q / 1000) END;
      s.at_us := at;
      s.busy_since_us := since_us;
      s.given_back := 0;
    WHEN 'F' THEN
      s := fixed_holding(s, l, spent, at, since_us);
    WHEN 'S' THEN
      s := sliding_holding(s, l, spent, at, since_us);
    WHEN 'G' THEN
      s := log_holding(s, spent, at, since_us);
  END CASE;
END
$$;

-- The state as it is at an instant. A state of another limit is advanced by its own numbers (`l` null).
CREATE OR REPLACE FUNCTION advance(INOUT s state, l law, now_us bigint)
LANGUAGE plpgsql STABLE AS $$
BEGIN
  CASE s.kind
    WHEN 'L' THEN
      s := level_advance(s, now_us);
    WHEN 'F' THEN
      s := fixed_advance(s, l, now_us);
    WHEN 'S' THEN
      s := sliding_advance(s, l, now_us);
    WHEN 'G' THEN
      s := log_advance(s, l, now_us);
  END CASE;
END
$$;

-- What counts against the capacity, rounded up.
CREATE OR REPLACE FUNCTION used_of(s state) RETURNS bigint
LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
  RETURN CASE s.kind
    WHEN 'L' THEN div_ceil(s.used, s.q / 1000)
    WHEN 'F' THEN s.used
    WHEN 'S' THEN sliding_used(s)
    WHEN 'G' THEN s.used - s.before
  END;
END
$$;

-- The state after admitting the cost.
CREATE OR REPLACE FUNCTION spend(INOUT s state, cost bigint)
LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
  IF s.kind = 'G' THEN
    s := log_spend(s, cost);
  ELSIF s.kind = 'L' THEN
    IF s.used = 0 THEN
      s.busy_since_us := begun_us(s.at_us, s.busy_since_us);
      s.given_back := 0;
    END IF;
    s.used := s.used + cost * (s.q / 1000);
  ELSE
    IF s.used = 0 AND (s.kind = 'F' OR s.before = 0) THEN
      s.busy_since_us := begun_us(s.at_us, s.busy_since_us);
    END IF;
    s.used := s.used + cost;
  END IF;
END
$$;

-- The state after a cost that is owed in any case, at most `debt` beyond the capacity.
CREATE OR REPLACE FUNCTION overdraw(INOUT s state, cost bigint, debt bigint)
LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
  most bigint;
BEGIN
  IF s.kind = 'L' THEN
    s := level_overdraw(s, cost, debt);
    RETURN;
  END IF;
  most := s.room + debt;
  IF s.kind = 'S' THEN
    most := least(most, sliding_most(s.parts));
  END IF;
  s := spend(s, least(cost, greatest(0, most - used_of(s))));
END
$$;

-- Capacity minus what is used, in the law's units.
CREATE OR REPLACE FUNCTION left_over(s state) RETURNS bigint
LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
  RETURN s.room - CASE WHEN s.kind = 'L' THEN s.used ELSE used_of(s) END;
END
$$;

-- The instant from which on the key is as fresh; null if never by itself.
CREATE OR REPLACE FUNCTION fresh_at_us(s state) RETURNS bigint
LANGUAGE sql IMMUTABLE AS $$
  SELECT CASE s.kind
    WHEN 'L' THEN CASE
      WHEN s.used = 0 THEN s.at_us
      WHEN s.p > 0 THEN s.at_us + (s.used + s.p - 1) / s.p
    END
    WHEN 'F' THEN CASE WHEN s.used = 0 THEN s.at_us ELSE s.end_us END
    WHEN 'S' THEN s.start_us + s.length_us * CASE WHEN s.used > 0 THEN 2 ELSE 1 END
    WHEN 'G' THEN s.end_us + s.length_us
  END
$$;
