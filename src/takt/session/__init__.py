"""Who asks: sessions, their newest observation, and when an answer is due.

Pure rules shared by doors and simulator: no socket, no clock, no array. Every call that needs an
instant takes it as an argument.

Start reading at :class:`takt.session.table.SessionTable`; instants are resolved in
:mod:`takt.session.timing`.
"""
