-- IdempotencyQuiet: how long a record's owner must have been unseen before anybody may say "not executed". Of the record,
-- as the other rules it was made with: the tool needs no configuration of httpd.
ALTER TABLE idempotency_records ADD COLUMN quiet interval NOT NULL DEFAULT '15 minutes';
