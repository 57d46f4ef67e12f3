"""The `thruway` command: bench, doctor, cache. The only room that loads terminal libraries; it uses thruway as a user does."""
