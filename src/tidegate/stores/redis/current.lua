-- What is stored of a key as it is now under a law: read, carried over if the limit has changed, advanced.
--
-- The end of the function `rarer`. `makers` makes the law of each letter; carry() is core/carry.py and current() is
-- core/compose.py. A value that cannot be read counts as a state of a changed limit with everything used
-- now: never an error, never credit. "N1" is fresh by any law (forget.lua).
--
-- Strict charges: the epoch is the instant since which this store has lost nothing. An absent key may have
-- been lost before it, so it counts as one that was used up at the epoch, and has drained since. Where there
-- is no epoch it is now. An epoch of 0 or less says that nothing was ever lost: then a budget that no time
-- refills (rate 0) begins full.

local kinds, laws, epochs, unset = {}, {}, {}, {}

local function law_of_words(words)
  local letter = match(words[1] or '', '^([LFSG])1$')
  if letter then
    kinds[letter] = kinds[letter] or makers[letter]()
    return kinds[letter].of(words)
  end
end

local function words_of(text)
  local words = {}
  for word in string.gmatch(text, '%S+') do
    words[#words + 1] = word
  end
  return words
end

-- The law that a charge's text says. `windows`: the boundaries of a calendar around now, as text.
local function law_of(text, windows)
  local law = laws[text] or law_of_words(words_of(text))
  laws[text] = law
  if windows and windows ~= '' then
    law.windows = words_of(windows)
    for i, bound in ipairs(law.windows) do
      law.windows[i] = tonumber(bound)
    end
  end
  law.is_missed = false
  return law
end

-- The state that a value says, with the law that wrote it; nil if it says none.
local function read(value, key)
  local words = words_of(string.sub(value, 1, string.sub(value, 1, 1) == 'G' and 128 or -1))
  local law = law_of_words(words)
  return law and law.kind.read(law, words, key)
end

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

-- The state of an absent key under a strict charge; whether it was moved back; the error, if any.
local function since_epoch(law, key)
  if not epochs[key] then
    local text = ask('GETRANGE', key, 0, 31)
    if text.err then
      return nil, nil, text.err
    end
    epochs[key] = whole(text)
    if not epochs[key] then
      epochs[key], unset[key] = now, true
    end
  end
  local epoch, kind = epochs[key], law.kind
  if epoch - now > STEP_US then
    return kind.holding(law, law.capacity, now, epoch + 1), true
  end
  if law.p == 0 and epoch <= 0 or kind.letter == 'F' and epoch < kind.window(law, now) then
    return kind.holding(law, 0, now, epoch)
  end
  return kind.advance(law, kind.holding(law, law.capacity, epoch, epoch))
end

-- The state now; whether a refusal must keep it; the error, if any.
local function current(law, key, value, way, epoch)
  local kind = law.kind
  if value == '' then
    if epoch then
      return since_epoch(law, epoch)
    end
    return kind.holding(law, 0, now, now - 1)
  end
  if value == 'N1' then
    return kind.holding(law, 0, now, now - 1)
  end
  local state = read(value, key)
  if not state then
    return kind.holding(law, law.capacity, now, now), true
  end
  local at, is_changed = state.at, state.law.text ~= law.text
  if is_changed then
    state = carry(state, law, way)
  end
  state.law = law
  state = kind.advance(law, state)
  return state, is_changed or state.at < at
end

-- Makes the epoch now if there is none; the error, if any.
local function set_epoch(key)
  if key and unset[key] then
    local done = ask('SET', key, format('%.0f', now))
    if done.err then
      return done.err
    end
    unset[key] = nil
  end
end

-- Gives a key that has no expiry the one of this state.
local function expire(key, law, state)
  local fresh_in_us = law.kind.reset_after_us(law, state)
  if fresh_in_us and ask('PTTL', key) == -1 then
    ask('PEXPIRE', key, ceil(max(0, fresh_in_us) / 1000) + allowance_ms)
  end
end
