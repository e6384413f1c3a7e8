-- The law of core/windows.py that counts in fixed windows, of one length from the epoch or of a calendar.
--
-- State "F1 capacity calendar counted at ago start end": `calendar` is "even:LENGTH_US" or "month:ZONE" and
-- the like, `counted` are thousandths of a token in the window from `start` to `end`.
-- Time zones are not known here: the windows of a calendar come with the charge, as four boundaries. An
-- instant outside them makes `is_missed` true, and then nothing is charged.
-- Part of the function `rarer`; returns the law. The functions are those of core/windows.py, in its order.

local Fixed = { letter = 'F' }

function Fixed.of(words)
  local capacity, calendar = whole(words[2]), words[3]
  if capacity and calendar and capacity > 0 then
    local length = match(calendar, '^even:(%d+)$')
    length = length and whole(length)
    if length ~= 0 then
      local text = format('F1 %.0f %s ', capacity, calendar)
      return { kind = Fixed, text = text, capacity = capacity, grain = 1, length = length }
    end
  end
end

function Fixed.read(law, words)
  local counted, at, ago, start, past = wholes(words, 4, 8)
  if counted and counted >= 0 then
    return { law = law, counted = counted, at = at, since = at - ago, start = start, past = past }
  end
end

function Fixed.numbers(law, state)
  return format('%.0f %.0f %.0f %.0f %.0f',
    state.counted, state.at, state.at - state.since, state.start, state.past)
end

-- The window that holds the instant. Of a law that a stored state names, only the count and its end matter.
local function window(law, at)
  if law.length then
    local start = aligned(at, law.length)
    return start, start + law.length
  end
  local bounds = law.windows
  for i = 1, bounds and #bounds - 1 or 0 do
    if at >= bounds[i] and at < bounds[i + 1] then
      return bounds[i], bounds[i + 1]
    end
  end
  law.is_missed = true
  return at, at + 1
end

Fixed.window = window

function Fixed.advance(law, state)
  if state.counted == 0 then
    return Fixed.holding(law, 0, now, state.since)
  end
  local at = clock(state.at)
  if at < state.at then
    return Fixed.holding(law, state.counted, at, state.since + 1)
  end
  if at < state.past then
    state.at = at
    return state
  end
  return Fixed.holding(law, 0, at, state.since)
end

function Fixed.fits(law, state, cost)
  return cost <= law.capacity - state.counted
end

function Fixed.spend(law, state, cost)
  if state.counted == 0 then
    state.since = begun(state.at, state.since)
  end
  state.counted = state.counted + cost
  return state
end

-- `most`: the highest count that a debt may reach.
function Fixed.overdraw(law, state, cost, most)
  most = max(state.counted, most)
  Fixed.spend(law, state, cost)
  state.counted = min(state.counted, most)
  return state
end

function Fixed.is_fresh(law, state)
  return state.counted == 0
end

function Fixed.used(law, state)
  return state.counted
end

Fixed.taken = Fixed.used

function Fixed.reset_after_us(law, state)
  return state.counted > 0 and state.past - now or 0
end

function Fixed.give_back(law, state, receipt)
  local returned = state.since == receipt.since and min(receipt.units, state.counted) or 0
  state.counted = state.counted - returned
  return returned, state
end

function Fixed.holding(law, used, at, since)
  local start, past = window(law, at)
  return { law = law, counted = min(used, MOST), at = at, since = since, start = start, past = past }
end

function Fixed.text(law, state)
  return law.text .. Fixed.numbers(law, state)
end

function Fixed.write(law, state, key)
  return kept(key, Fixed.text(law, state), Fixed.reset_after_us(law, state))
end

return Fixed
