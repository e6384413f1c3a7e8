-- The windows of core/windows.py: fixed ones, and two weighed counters. Counts are whole thousandths.
--
-- The windows of a calendar are not known here: the caller passes those around its idea of now. An instant in
-- none of them gives a state without a window (`start_us` null), and then nothing is charged: `decide` answers
-- that it was missed, and is asked again.

-- The multiple of a length at or before the instant.
CREATE OR REPLACE FUNCTION floor_to(at_us bigint, length_us bigint) RETURNS bigint
LANGUAGE sql IMMUTABLE AS $$ SELECT at_us - ((at_us % length_us) + length_us) % length_us $$;

CREATE OR REPLACE FUNCTION window_of(l law, at_us bigint, OUT start_us bigint, OUT end_us bigint)
LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
  IF l.length_us IS NOT NULL THEN
    start_us := floor_to(at_us, l.length_us);
    end_us := start_us + l.length_us;
    RETURN;
  END IF;
  FOR i IN 1 .. coalesce(cardinality(l.edges_us), 0) - 1 LOOP
    IF at_us >= l.edges_us[i] AND at_us < l.edges_us[i + 1] THEN
      start_us := l.edges_us[i];
      end_us := l.edges_us[i + 1];
    END IF;
  END LOOP;
END
$$;

-- The window of an instant, with so many thousandths counted.
CREATE OR REPLACE FUNCTION fixed_holding(INOUT s state, l law, counted bigint, at bigint, since_us bigint)
LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
  w record := window_of(l, at);
BEGIN
  s.used := counted;
  s.at_us := at;
  s.busy_since_us := since_us;
  s.start_us := w.start_us;
  s.end_us := w.end_us;
END
$$;

CREATE OR REPLACE FUNCTION fixed_advance(INOUT s state, l law, now_us bigint)
LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
  at CONSTANT bigint := clock(s.at_us, now_us);
BEGIN
  IF s.used = 0 THEN
    s := fixed_holding(s, l, 0, now_us, s.busy_since_us);
  ELSIF at < s.at_us THEN
    s := fixed_holding(s, l, s.used, at, s.busy_since_us + 1);
  ELSIF at < s.end_us THEN
    s.at_us := at;
  ELSE
    s := fixed_holding(s, l, 0, at, s.busy_since_us);
  END IF;
END
$$;

-- The estimate of two counters in thousandths, rounded up.
CREATE OR REPLACE FUNCTION sliding_used(s state) RETURNS bigint
LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
  gone CONSTANT bigint := (s.at_us - s.start_us) / (s.length_us / s.parts);
BEGIN
  RETURN div_ceil(s.before * (s.parts - gone), s.parts) + s.used;
END
$$;

-- The largest count whose weight the integers hold.
CREATE OR REPLACE FUNCTION sliding_most(parts bigint) RETURNS bigint
LANGUAGE sql IMMUTABLE AS $$ SELECT 9007199254740991 / parts $$;

CREATE OR REPLACE FUNCTION sliding_holding(INOUT s state, l law, counted bigint, at bigint, since_us bigint)
LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
  s.before := 0;
  s.used := least(counted, sliding_most(l.parts));
  s.at_us := at;
  s.busy_since_us := since_us;
  s.start_us := floor_to(at, l.length_us);
END
$$;

CREATE OR REPLACE FUNCTION sliding_advance(INOUT s state, l law, now_us bigint)
LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
  at CONSTANT bigint := clock(s.at_us, now_us);
  start CONSTANT bigint := floor_to(at, l.length_us);
BEGIN
  IF s.used = 0 AND s.before = 0 THEN
    s := sliding_holding(s, l, 0, now_us, s.busy_since_us);
  ELSIF at < s.at_us THEN  -- moved back: what the counters weighed counts as spent in the window of now
    s := sliding_holding(s, l, sliding_used(s), at, s.busy_since_us + 1);
  ELSE
    IF start <> s.start_us THEN
      s.before := CASE WHEN start - s.start_us = l.length_us THEN s.used ELSE 0 END;
      s.used := 0;
      s.start_us := start;
    END IF;
    s.at_us := at;
  END IF;
END
$$;

-- Uncount it in the window it was counted in, if that one still weighs.
CREATE OR REPLACE FUNCTION sliding_give_back(
  INOUT s state, units bigint, receipt_at_us bigint, since_us bigint, OUT returned bigint
) LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
  counted_in CONSTANT bigint := floor_to(receipt_at_us, s.length_us);
BEGIN
  returned := 0;
  IF since_us <> s.busy_since_us THEN
    RETURN;
  ELSIF counted_in = s.start_us THEN
    returned := least(units, s.used);
    s.used := s.used - returned;
  ELSIF counted_in = s.start_us - s.length_us THEN
    returned := least(units, s.before);
    s.before := s.before - returned;
  END IF;
END
$$;
