package postgres

// Tokens come from one logged sequence. lockstile_draw answers the first of 1,024
// that are its caller's alone, so that the next draw's are all greater. It is called
// where exclusion is already certain: whoever else draws for the same name is kept
// out until this transaction has committed. The sequence ends where the last of 1,024
// no longer fits a bigint, with an error.
//
// A sequence is not undone with its transaction, and the server logs 32 numbers at
// once, so a draw may leave nothing in the log, and what another transaction has left
// there may not be on disk yet. A crash would then give the number out again. So a
// token may be told to anybody when a transaction that wrote something to the log
// after the draw has committed with a wait for the disk. lockstile_draw sees to the
// wait. Its caller sees to it that there is something to wait for: a row of a
// logged table, or a message (pg_logical_emit_message).
const schemaToken = `
CREATE OR REPLACE FUNCTION lockstile_draw() RETURNS bigint LANGUAGE plpgsql AS $$
BEGIN` + schemaSync + `
  RETURN nextval('lockstile_token') * 1024;
END $$;
`
