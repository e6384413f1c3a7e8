-- What forget.lua does with one key.
--
-- The end of the function `rarer` in the script "forget"; returns its function.

-- How long a key that was used up stays so, at most; nil if for ever.
local function full_us(law, state)
  if law.kind.letter == 'L' then
    return law.p > 0 and div_ceil(law.room, law.p) or nil
  elseif law.kind.letter == 'F' then
    return law.length or max(0, state.past - state.start)
  end
  return law.window or 2 * law.length
end

local function freshened(key, has_epoch)
  local value = ask('GETRANGE', key, 0, 191)
  local state = not value.err and read(value, key)
  local failure
  if state then
    local law, kind = state.law, state.law.kind
    local fresh = kind.holding(law, 0, state.at, state.since)
    local us = full_us(law, state)
    failure = kind.write(law, fresh, key, kind.numbers(law, fresh))
    if us and not failure then
      ask('PEXPIRE', key, ceil(us / 1000) + allowance_ms)
    elseif not failure then
      ask('PERSIST', key)
    end
  elseif (value == '' or value == 'N1') and has_epoch then
    failure = kept(key, 'N1', 30 * 86400 * 1000000)
  else
    local done = ask('UNLINK', key)
    failure = type(done) == 'table' and done.err or nil
  end
  return failure and told(failure) or '1'
end

return { freshened = freshened }
