-- The law of core/windows.py that weighs two counters.
--
-- State "S1 capacity tick parts before counted at ago start": thousandths of a token in the window before
-- the one that begins at `start`, and in that one. A window has `parts` ticks of `tick` microseconds; the
-- weight of the one before falls by a part each tick.
-- Part of the function `rarer`; returns the law. The functions are those of core/windows.py.

local function of(text, kind)
  local capacity, tick, parts, past = match(text, '^S1 (%S+) (%S+) (%S+) ()')
  capacity, tick, parts = whole(capacity), whole(tick), whole(parts)
  if capacity and tick and parts and capacity > 0 and tick > 0 and parts > 0 and tick * parts < EXACT then
    return { kind = kind, text = format('S1 %.0f %.0f %.0f ', capacity, tick, parts), capacity = capacity,
      grain = 1, tick = tick, parts = parts, length = tick * parts, most = div_floor(MOST, parts) }, past
  end
end

local function read(law, value, from)
  local before, counted, at, ago, start = match(value, '^(%S+) (%S+) (%S+) (%S+) (%S+)$', from)
  before, counted, at, ago, start = whole(before), whole(counted), whole(at), whole(ago), whole(start)
  if before and counted and at and ago and start
    and before >= 0 and counted >= 0 and before <= law.most and counted <= law.most
    and at >= start and at - start < law.length then
    return { law = law, before = before, counted = counted, at = at, since = at - ago, start = start }
  end
end

local function numbers(law, state)
  return format(FIVE,
    state.before, state.counted, state.at, state.at - state.since, state.start)
end

local function is_fresh(law, state)
  return state.counted == 0 and state.before == 0
end

local function used(law, state)
  local gone = div_floor(state.at - state.start, law.tick)
  return div_ceil(state.before * (law.parts - gone), law.parts) + state.counted
end

local function holding(law, amount, at, since)
  return { law = law, before = 0, counted = min(amount, law.most), at = at, since = since,
    start = aligned(at, law.length) }
end

local function advance(law, state)
  if is_fresh(law, state) then
    return holding(law, 0, now, state.since)
  end
  local at = clock(state.at)
  if at < state.at then
    return holding(law, used(law, state), at, state.since + 1)
  end
  local start = aligned(at, law.length)
  if start ~= state.start then
    state.before = start - state.start == law.length and state.counted or 0
    state.counted, state.start = 0, start
  end
  state.at = at
  return state
end

local function fits(law, state, cost)
  return cost <= law.capacity - used(law, state)
end

local function spend(law, state, cost)
  if is_fresh(law, state) then
    state.since = begun(state.at, state.since)
  end
  state.counted = state.counted + cost
  return state
end

-- `most`: the highest estimate that a debt may reach.
local function overdraw(law, state, cost, most)
  return spend(law, state, min(cost, max(0, min(most, law.most) - used(law, state))))
end

local function reset_after_us(law, state)
  if is_fresh(law, state) then
    return 0
  end
  return state.start + (state.counted > 0 and 2 or 1) * law.length - now
end

local function give_back(law, state, receipt)
  if receipt.since ~= state.since then
    return 0, state
  end
  local counted_in = aligned(receipt.at, law.length)
  local returned = 0
  if counted_in == state.start then
    returned = min(receipt.units, state.counted)
    state.counted = state.counted - returned
  elseif counted_in == state.start - law.length then
    returned = min(receipt.units, state.before)
    state.before = state.before - returned
  end
  return returned, state
end

local function write(law, state, key, said)
  return kept(key, law.text .. said, reset_after_us(law, state))
end

return {
  letter = 'S', of = of, read = read, numbers = numbers, advance = advance, fits = fits, spend = spend,
  overdraw = overdraw, is_fresh = is_fresh, used = used, reset_after_us = reset_after_us,
  give_back = give_back, holding = holding, write = write, taken = used
}
