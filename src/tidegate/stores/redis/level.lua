-- The law of core/level.py: one number a key. Bucket, meter and queue share it.
--
-- State "L1 room q p level at ago given": `room` is the capacity in units, `q` units make a token, `p`
-- drain in a microsecond; `ago` is how long before `at` the busy period began (negative where a clock
-- stepped back), `given` what was given back in it, which may pass 2^53 and stays a text here.
-- Part of the function `rarer`; returns the law. The functions are those of core/level.py; a state is
-- changed in place.

-- The law that a text begins with, and where its numbers end; nil if no limit has them.
local function of(text, kind)
  local room, q, p, past = match(text, '^L1 (%S+) (%S+) (%S+) ()')
  room, q, p = whole(room), whole(q), whole(p)
  if room and q and p and room > 0 and p >= 0 and q >= 1000 and q % 1000 == 0 and room % (q / 1000) == 0 then
    return { kind = kind, text = format('L1 %.0f %.0f %.0f ', room, q, p), room = room, q = q, p = p,
      grain = q / 1000, capacity = room / (q / 1000) }, past
  end
end

-- The state that a value says from this place on; nil if it says none.
local function read(law, value, from)
  local level, at, ago, given = match(value, '^(%S+) (%S+) (%S+) (%S+)$', from)
  level, at, ago = whole(level), whole(at), whole(ago)
  if given and not match(given, '^%d+$') then
    given = whole(given) and format('%.0f', whole(given))
  end
  if level and at and ago and given and level >= 0 and not match(given, '^-') then
    return { law = law, level = level, at = at, since = at - ago, given = given }
  end
end

local function numbers(law, state)
  return format(THREE, state.level, state.at, state.at - state.since) .. ' ' .. state.given
end

local function holding(law, amount, at, since)
  local level = amount <= div_floor(MOST, law.grain) and amount * law.grain or MOST
  return { law = law, level = level, at = at, since = since, given = '0' }
end

local function advance(law, state)
  if state.level == 0 then
    state.at, state.given = now, '0'
  elseif now >= state.at then
    local gone = law.p * (now - state.at)
    state.level, state.at = gone < state.level and state.level - gone or 0, now
    if state.level == 0 then
      state.given = '0'
    end
  elseif clock(state.at) ~= state.at then
    state.at, state.since, state.given = now, state.since + 1, '0'
  end
  return state
end

-- `most`: the highest level at which the cost fits, for a caller with patience.
local function fits(law, state, cost, most)
  return state.level <= (most or law.room - cost)
end

local function spend(law, state, cost)
  if state.level == 0 then
    state.since, state.given = begun(state.at, state.since), '0'
  end
  state.level = state.level + cost
  return state
end

-- `most`: the highest level that a debt may reach.
local function overdraw(law, state, cost, most)
  most = max(state.level, most)
  spend(law, state, cost)
  state.level = min(state.level, most)
  return state
end

local function is_fresh(law, state)
  return state.level == 0
end

local function used(law, state)
  return div_ceil(state.level, law.grain)
end

-- What a change of this number is counted in: units.
local function taken(law, state)
  return state.level
end

local function reset_after_us(law, state)
  if state.level == 0 then
    return 0
  end
  return law.p > 0 and div_ceil(state.level, law.p) + max(0, state.at - now) or nil
end

-- A number as two: the digits above 10^15, and the others.
local function halves(text)
  return tonumber(string.sub(text, 1, -16)) or 0, tonumber(string.sub(text, -15))
end

local function sum(text, more)
  local high, low = halves(text)
  local more_high = floor(more / 1e15)
  high, low = high + more_high, low + more - more_high * 1e15
  if low >= 1e15 then
    high, low = high + 1, low - 1e15
  end
  return high > 0 and format('%.0f%015.0f', high, low) or format('%.0f', low)
end

-- One number minus another, at most about 2^53.
local function difference(text, other)
  local high, low = halves(text)
  local other_high, other_low = halves(other)
  return min((high - other_high) * 1e15 + low - other_low, EXACT)
end

local function give_back(law, state, receipt)
  if state.level == 0 or state.since ~= receipt.since then
    return 0, state
  end
  local returned = min(receipt.units, state.level)
  if not receipt.is_full then
    local by_others = difference(state.given, receipt.given) - receipt.own
    local undrained = max(receipt.cost, receipt.mark - by_others)
    local gone = law.p * max(0, state.at - receipt.at)
    undrained = gone < undrained and undrained - gone or 0
    returned = min(returned, max(0, undrained - receipt.own))
  end
  state.level, state.given = state.level - returned, sum(state.given, returned)
  return returned, state
end

-- Keeps the state, whose numbers as text are given; the error, if any.
local function write(law, state, key, said)
  return kept(key, law.text .. said, reset_after_us(law, state))
end

return {
  letter = 'L', of = of, read = read, numbers = numbers, advance = advance, fits = fits, spend = spend,
  overdraw = overdraw, is_fresh = is_fresh, used = used, taken = taken, reset_after_us = reset_after_us,
  give_back = give_back, holding = holding, write = write
}
