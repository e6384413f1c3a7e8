-- The law of core/windows.py that weighs two counters.
--
-- State "S1 capacity tick parts before counted at ago start": thousandths of a token in the window before
-- the one that begins at `start`, and in that one. A window has `parts` ticks of `tick` microseconds; the
-- weight of the one before falls by a part each tick.
-- Part of the function `rarer`; returns the law. The functions are those of core/windows.py, in its order.

local Sliding = { letter = 'S' }

function Sliding.of(words)
  local capacity, tick, parts = whole(words[2]), whole(words[3]), whole(words[4])
  if capacity and tick and parts and capacity > 0 and tick > 0 and parts > 0 and tick * parts < EXACT then
    local text = format('S1 %.0f %.0f %.0f ', capacity, tick, parts)
    return { kind = Sliding, text = text, capacity = capacity, grain = 1, tick = tick, parts = parts,
      length = tick * parts, most = floor(MOST / parts) }
  end
end

function Sliding.read(law, words)
  local before, counted, at, ago, start = wholes(words, 5, 9)
  if before and before >= 0 and counted >= 0 and before <= law.most and counted <= law.most then
    return { law = law, before = before, counted = counted, at = at, since = at - ago, start = start }
  end
end

function Sliding.numbers(law, state)
  return format('%.0f %.0f %.0f %.0f %.0f',
    state.before, state.counted, state.at, state.at - state.since, state.start)
end

function Sliding.advance(law, state)
  if Sliding.is_fresh(law, state) then
    return Sliding.holding(law, 0, now, state.since)
  end
  local at = clock(state.at)
  if at < state.at then
    return Sliding.holding(law, Sliding.used(law, state), at, state.since + 1)
  end
  local start = aligned(at, law.length)
  if start ~= state.start then
    state.before = start - state.start == law.length and state.counted or 0
    state.counted, state.start = 0, start
  end
  state.at = at
  return state
end

function Sliding.fits(law, state, cost)
  return cost <= law.capacity - Sliding.used(law, state)
end

function Sliding.spend(law, state, cost)
  if Sliding.is_fresh(law, state) then
    state.since = begun(state.at, state.since)
  end
  state.counted = state.counted + cost
  return state
end

-- `most`: the highest estimate that a debt may reach.
function Sliding.overdraw(law, state, cost, most)
  return Sliding.spend(law, state, min(cost, max(0, min(most, law.most) - Sliding.used(law, state))))
end

function Sliding.is_fresh(law, state)
  return state.counted == 0 and state.before == 0
end

function Sliding.used(law, state)
  local gone = div_floor(state.at - state.start, law.tick)
  return div_ceil(state.before * (law.parts - gone), law.parts) + state.counted
end

Sliding.taken = Sliding.used

function Sliding.reset_after_us(law, state)
  if Sliding.is_fresh(law, state) then
    return 0
  end
  return state.start + (state.counted > 0 and 2 or 1) * law.length - now
end

function Sliding.give_back(law, state, receipt)
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

function Sliding.holding(law, used, at, since)
  return { law = law, before = 0, counted = min(used, law.most), at = at, since = since,
    start = aligned(at, law.length) }
end

function Sliding.text(law, state)
  return law.text .. Sliding.numbers(law, state)
end

function Sliding.write(law, state, key)
  return kept(key, Sliding.text(law, state), Sliding.reset_after_us(law, state))
end

return Sliding
