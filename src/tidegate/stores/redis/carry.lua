-- A state carried over to a changed limit: core/carry.py, in its order.
--
-- Part of the function `rarer`; returns one function. The ways are those of core/carry.py; products that
-- could pass 2^53 are never made.

-- Whether a/b <= c/d, by their continued fractions: the products could pass 2^53.
local function is_at_most(a, b, c, d)
  while true do
    local m, n = div_floor(a, b), div_floor(c, d)
    if m ~= n then
      return m < n
    end
    a, c = a - m * b, c - n * d
    if a == 0 or c == 0 then
      return a == 0
    end
    a, b, c, d = d, c, b, a
  end
end

-- used * after / before rounded up, bit by bit; at most MOST.
local function in_proportion(used, before, after)
  local times = div_floor(used, before)
  local part = used - times * before
  local quotient, rest = 0, 0
  local function add(more)
    if rest >= before - more then
      quotient, rest = quotient + 1, rest - (before - more)
    else
      rest = rest + more
    end
  end
  local left, bit = after, EXACT / 2
  while bit >= 1 do
    quotient = quotient * 2
    add(rest)
    if left >= bit then
      left = left - bit
      add(part)
    end
    bit = bit / 2
  end
  return min(times * after + quotient + (rest > 0 and 1 or 0), MOST)
end

local function carried(used, before, after, way)
  if way == 'strict' then
    return max(used, after - max(0, before - used))
  elseif way == 'keep_tokens' then
    return max(0, after - (before - used))
  elseif way == 'proportional' then
    return in_proportion(used, before, after)
  end
  return way == 'keep_level' and used or 0
end

local function carry(state, law, way)
  local before, kind, since = state.law, law.kind, state.since + 1
  local own_kind = before.kind
  local slowly
  if kind.letter == 'L' and own_kind == kind and not is_at_most(before.p, before.q, law.p, law.q) then
    slowly = kind.holding(law, kind.used(before, state), state.at, state.since)
  end
  local own = own_kind.advance(before, state)
  if own_kind.is_fresh(before, own) then
    return kind.holding(law, 0, own.at, since)
  end
  if kind.letter == 'G' and own_kind == kind and (way == 'strict' or way == 'keep_level') then
    own.law, own.since = law, since
    own = kind.advance(law, own)
    local used = kind.used(law, own)
    return kind.spend(law, own, carried(used, before.capacity, law.capacity, way) - used)
  end
  local used, at = own_kind.used(before, own), own.at
  if slowly then
    slowly = kind.advance(law, slowly)
    used, at = kind.used(law, slowly), slowly.at
  end
  return kind.holding(law, carried(used, before.capacity, law.capacity, way), at, since)
end

return carry
