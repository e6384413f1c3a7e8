-- Makes keys fresh. The last part of the script "forget".
--
-- KEYS  the keys to make fresh, then the epoch of strict charges. All in one slot.
-- ARGV  the tag of the call
-- Reply a text of lines, each with its end: the tag, and for each key, in order, "1", or "!..." with the server's error
--       where it stays as it was.
--
-- A state is not removed but written anew with nothing used, so that its busy periods go on being told
-- apart (a refund of what was taken before must return nothing), and so that a strict charge does not take
-- it for one that was lost. What is no state of ours is removed. Where an epoch is set, a key that is not
-- there becomes "N1", which is fresh by any law, for thirty days.
-- Expires: after the time in which a full one would have become fresh, and an hour; never where that is never.
--
-- Atomic: all keys together.

local ask = redis.pcall
local epoch = ask('GETRANGE', KEYS[#KEYS], 0, 31)
local has_epoch = not epoch.err and (tonumber(epoch) or 0) > 0
local laws = rarer(0, ask, 3600000)
local lines = { ARGV[1] }

for i = 1, #KEYS - 1 do
  lines[i + 1] = laws.freshened(KEYS[i], has_epoch)
end
return table.concat(lines, '\n') .. '\n'
