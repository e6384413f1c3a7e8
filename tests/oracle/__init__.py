"""The oracle: every algorithm again, in fractions, naive and obviously right.

Nothing in this folder imports the package under test. Time is whole microseconds, everything else is
`fractions.Fraction`; nothing is optimised, and where a definition can be searched for it is searched.
"""
