package postgres

// A token must outlast a crash, but not every lock should have to wait for the
// disk. So tokens come from two sequences. lockstile_token is logged, and counts
// blocks of 2^20 tokens. lockstile_quick is not, and counts tokens inside a block.
// Writing to an unlogged sequence or table waits for nothing, and a crash or a
// promotion sets it back to its beginning: a number below every block.
//
// The first token of a block is its number times 2^20, and belongs to whoever drew
// the number, with a commit that waits for the disk. The others may be used if
// that commit is known to have waited: then somebody else raises lockstile_quick
// to the block. They are good for as long as lockstile_token stands at that number,
// and only the first half of them is, for the sequence can run on while one
// backend after another finds it at the end: by one each, and a server has fewer
// than 2^18.
//
// Tokens of a name increase, because whoever draws one excludes the others who
// would draw one for the same name, and so every draw falls between the end of
// the last and the beginning of the next. Let e be the block that
// lockstile_token stood at when the first draw looked. Both sequences only rise.
//
//   - A number after whatever: it is above e, so its token is above every token of
//     the blocks up to e, and those are all that were given out.
//   - A quick token after a number: lockstile_quick was found in the block of that
//     number or a higher one, behind its first token.
//   - A quick token after a quick one: the sequence rises, unless the server
//     crashed in between. Then it begins in no block, and gets into one
//     only by way of a number that was drawn since. The crash does not take back
//     the number of a block that quick tokens came from, nor any before it.
//
// lockstile_quick (the function) draws a quick token, or nothing where there is
// none to be had.
//
// lockstile_raise waits until nobody is setting a block aside, and opens the last
// one that was. Sequences are not undone with a transaction, so it does this in a
// subtransaction of its own, which it undoes: the locks end with it, and not with
// the transaction of a caller that may go on for long. Two who raised at once could
// set the sequence back. A row that can be seen is on disk, unless it is the
// caller's own; a caller whose snapshot is older does not see it, and does without.
//
// lockstile_draw is the only way to a token or a ticket. With _reserve its caller
// is a statement by itself, which commits at once: it sets a block aside for all,
// or waits for somebody who does (a draw in between would make the block useless).
// That is why it is called before any row is locked: nobody for whom others wait
// here may wait for them. Everybody waits while one who sets a block aside waits
// for the row of its own name, so it soon gives up if somebody keeps that, even if
// its client is gone. A transaction that goes on for long only draws a number.
// A commit that waits for no disk may give out a quick token, and never a number.
// The message makes sure that the commit has something to wait for: the server
// logs a sequence for 32 values at once, so a draw may leave nothing in the log,
// and what another transaction has left there may not be on disk yet. Where there
// is a synchronous standby, every draw waits for it: a server that was replaced
// without knowing must not go on granting.
const schemaDraw = `
CREATE OR REPLACE FUNCTION lockstile_quick() RETURNS bigint LANGUAGE plpgsql AS $$
BEGIN
  RETURN (SELECT CASE WHEN q.last_value / 1048576 = t.last_value AND q.last_value % 1048576 < 524288
    THEN nextval('lockstile_quick') END FROM lockstile_quick q, lockstile_token t);
END $$;

CREATE OR REPLACE FUNCTION lockstile_raise() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  PERFORM pg_advisory_xact_lock_shared(1819239277, 0);
  PERFORM pg_advisory_xact_lock(1819239277, 1);
  PERFORM setval('lockstile_quick', b.number * 1048576)
    FROM lockstile_block b, lockstile_quick q
    WHERE b.number * 1048576 > q.last_value AND b.writer IS DISTINCT FROM pg_current_xact_id_if_assigned();
  RAISE EXCEPTION USING ERRCODE = 'LS000';
EXCEPTION WHEN SQLSTATE 'LS000' OR lock_not_available THEN
END $$;

CREATE OR REPLACE FUNCTION lockstile_draw(_reserve boolean) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
  _token bigint := lockstile_quick();
  _alone boolean := false;
  _number bigint;
BEGIN
  FOR _round IN 1..3 LOOP
    EXIT WHEN _token IS NOT NULL OR _alone OR _round > 1 AND NOT _reserve;
    _alone := _reserve AND pg_try_advisory_xact_lock(1819239277, 0);
    PERFORM lockstile_raise();
    _token := lockstile_quick();
  END LOOP;
  IF _token IS NULL THEN
    IF current_setting('synchronous_commit') IN ('off', 'local') THEN
      PERFORM set_config('synchronous_commit', 'on', true);
    END IF;
    _number := nextval('lockstile_token');
    _token := _number * 1048576;
    IF _alone THEN
      DELETE FROM lockstile_block;
      INSERT INTO lockstile_block (number, writer) VALUES (_number, pg_current_xact_id());
      IF current_setting('lock_timeout')::interval NOT BETWEEN '1 ms' AND '5 s' THEN
        PERFORM set_config('lock_timeout', '5000', true);
      END IF;
    END IF;
  ELSIF current_setting('synchronous_standby_names') = '' THEN
    RETURN _token;
  END IF;
  PERFORM pg_logical_emit_message(true, 'lockstile', '');
  RETURN _token;
END $$;
`
