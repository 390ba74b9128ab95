# Reserve: one record a scope, one owner a record. CONTRACT sections 2, 4 and 7.
use strict;
use warnings;
use Idem::Cut;
use Idem::Driver;

my $pg = migrated();
my $d = Idem::Driver->new(pg => $pg);

subtest 'a fresh scope is reserved, the next one finds it' => sub {
    my $first = $d->call('reserve', key => 'fresh', operation => uuid(1), effect => 'external', state => 'EXECUTING',
        recipe => "\0recipe\xff", parts => 'parts', fingerprint => 9);
    is($first->{result}, 'OK', 'reserved');
    my $second = $d->call('reserve', key => 'fresh');
    is($second->{result}, 'FOUND', 'found');
    my %want = (operation => uuid(1), state => 'EXECUTING', effect => 'external', outcome => 'none', generation => 1, token => $first->{token},
        fingerprint => 9, recipe => "\0recipe\xff", parts => 'parts', lapsed => 0, owner_alive => 1, expired => 0,
        tombstone_over => 0, attempts => 0, attempt_open => 0, code => 0, body => undef, headers => undef, settled => 0);
    is_deeply({ map { $_ => $second->{$_} } keys %want }, \%want, 'as it was reserved');
    cmp_ok($second->{lease_left}, '>', 50_000, 'the lease has just begun');
    cmp_ok($second->{lease_left}, '<=', 60_000, 'and is as long as said');
    is($pg->value('SELECT count(*) FROM idempotency_events'), 0, 'a reserve makes no event');
};

subtest 'every part of the scope is part of the identity' => sub {
    my %base = (version => 'v1', tenant => 't1', principal => 'p1', route => 'r1', revision => '1', ns => 'u:', key => 'k1');
    my %other = (version => 'shadow-v1', tenant => 't2', principal => 'p2', route => 'r2', revision => '2', ns => 's:', key => 'k2');
    is($d->call('reserve', %base)->{result}, 'OK', 'reserved');
    is($d->call('reserve', %base)->{result}, 'FOUND', 'found again');
    is($d->call('reserve', %base, $_ => $other{$_})->{result}, 'OK', "another $_ is another record") for sort keys %base;
    is($d->call('reserve', %base, tenant => 'T1')->{result}, 'OK', 'case counts');
    is($d->call('reserve', %base, key => 'k1 ')->{result}, 'OK', 'blanks count');
};

subtest 'what a part may hold' => sub {
    my %part = (
        quotes => q('"''"), backslashes => '\\x41\\\\', dollar => '$1 $$ %s', semicolon => "'; DROP TABLE idempotency_records; --",
        joined => "a\x1eb", ascii => join('', map { chr } 0x20 .. 0x7e), percent => '%_%', long => 'x' x 255,
        (map { sprintf('plane_%x', $_) => do { my $c = chr($_ * 0x10000 + 0x4e2d); utf8::encode($c); "<$c>" } } 0 .. 16),
        combining => "e\xcc\x81", precomposed => "\xc3\xa9", noncharacter => "\xef\xbf\xbf", bom => "\xef\xbb\xbf",
    );
    for my $name (sort keys %part) {
        my %scope = map { $_ => $part{$name} } $name eq 'joined' ? qw(tenant principal) : qw(tenant principal route revision key);
        is($d->call('reserve', %scope)->{result}, 'OK', "$name: reserved");
        my $again = $d->call('reserve', %scope);
        is($again->{result}, 'FOUND', "$name: found");
        is_deeply({ map { $_ => $again->{$_} } keys %scope }, \%scope, "$name: octet for octet");
    }
    my %longest = (tenant => 'x' x 800, principal => "\xf0\x9f\x98\x80" x 200, map { $_ => 'y' x 255 } qw(route revision key));
    is($d->call('reserve', %longest)->{result}, 'OK', 'the longest scope there is fits the key');
    is($d->call('reserve', %longest)->{result}, 'FOUND', 'and is found');
};

subtest 'one of many at once' => sub {
    for my $round (1 .. 5) {
        my $race = $d->call('race', threads => 32, key => "race$round", deadline => 20_000);
        is($race->{OK}, 1, "round $round: one has it");
        is($race->{FOUND}, 31, "round $round: the others find it") or diag(explain($race), $d->log);
    }
};

subtest 'looking only' => sub {
    is($d->call('reserve', key => 'looked', may_write => 0)->{result}, 'NOT_FOUND', 'no record');
    is($pg->value(q(SELECT count(*) FROM idempotency_records WHERE idem_key = 'looked')), 0, 'none is made');
    is($d->call('reserve', key => 'fresh', may_write => 0)->{result}, 'FOUND', 'one that exists is found');
};

subtest 'a fenced writer' => sub {
    $pg->do('UPDATE idempotency_control SET writer_epoch = 2');
    is($d->call('reserve', key => 'fenced')->{result}, 'FENCED', 'an epoch that has passed does not reserve');
    is($d->call('reserve', key => 'fresh')->{result}, 'FOUND', 'and still finds');
    $d->call('set', epoch => 2);
    is($d->call('reserve', key => 'fenced')->{result}, 'OK', 'the epoch of today reserves');
    is($pg->value(q(SELECT writer_epoch FROM idempotency_records WHERE idem_key = 'fenced')), 2, 'and is noted');
    $d->call('set', epoch => 3);
    is($d->call('reserve', key => 'ahead')->{result}, 'OK', 'so does a later one');
    $d->call('set', epoch => 1);
    $pg->do('UPDATE idempotency_control SET writer_epoch = 1, alias_version = 4');
    is($d->call('reserve', key => 'stale')->{result}, 'FENCED', 'other aliases than the store has do not reserve');
    is($d->call('reserve', key => 'stale', alias => 4)->{result}, 'OK', 'the same do');
    $pg->do('UPDATE idempotency_control SET alias_version = 0');
    is($pg->value(q(SELECT count(*) FROM idempotency_records WHERE idem_key IN ('fenced', 'ahead', 'stale'))), 3, 'nothing else was written');
};

subtest 'an owner that the store does not know makes itself known first' => sub {
    my $new = Idem::Driver->new(pg => $pg, heartbeat => 0);
    is($new->call('reserve', key => 'unseen')->{result}, 'OK', 'reserved');
    is($d->call('find', key => 'unseen')->{lapsed}, 0, 'and not lapsed at once');
    $pg->do('DELETE FROM idempotency_owners');
    is($new->call('reserve', key => 'unseen2')->{result}, 'OK', 'the same when its row was lost');
    is($d->call('find', key => 'unseen2')->{lapsed}, 0, 'not lapsed either');
    $pg->do(q(UPDATE idempotency_owners SET seen_at = now() - interval '1 hour'));
    is($new->call('reserve', key => 'unseen3')->{result}, 'OK', 'and when it was silent too long');
    is($d->call('find', key => 'unseen3')->{lapsed}, 0, 'not lapsed either');
    $d->call('heartbeat');
};

subtest 'an answer that was lost' => sub {
    my $wire = Idem::Cut->new($pg);
    my $far = Idem::Driver->new(conninfo => $wire->conninfo);
    $far->call('reserve', key => 'warm');
    $wire->arm('cut');
    my $own = $far->call('reserve', key => 'lost', operation => uuid(77), deadline => 5000);
    is($own->{result}, 'OK', 'the row that was made is recognised by its token');
    is($own->{maybe}, 1, 'and the loss is told');
    is($wire->done, "done\n", 'the answer was really lost');
    is($pg->value(q(SELECT count(*) FROM idempotency_records WHERE idem_key = 'lost')), 1, 'there is one row');
    is($d->call('find', key => 'lost')->{operation}, uuid(77), 'it is ours');

    is($d->call('reserve', key => 'theirs')->{result}, 'OK', 'somebody else reserves');
    $wire->arm('cut');
    is($far->call('reserve', key => 'theirs', deadline => 5000)->{result}, 'FOUND', "somebody else's row is not taken for ours");

    $wire->arm('cut', 9);
    my $twice = $far->call('reserve', key => 'twice', deadline => 5000);
    is($twice->{result}, 'AMBIGUOUS', 'lost twice: nobody can say');
    is($twice->{maybe}, 1, 'it may be there');
    my $still = Idem::Driver->new(conninfo => $wire->conninfo, heartbeat => 0);
    $wire->arm('cut', 0);
    is($still->call('withdraw', operation => $twice->{operation}, token => $twice->{token})->{result}, 'OK', 'it was, and is withdrawn');
    is($d->call('find', key => 'twice')->{result}, 'NOT_FOUND', 'the key is free');
    is($still->call('withdraw', operation => $twice->{operation}, token => $twice->{token})->{result}, 'NOT_FOUND', 'once');

    is($far->call('reserve', key => 'warm2')->{result}, 'OK', 'the wire works again');
    $wire->arm('mute');
    my $mute = $far->call('reserve', key => 'mute', deadline => 700);
    is($mute->{result}, 'AMBIGUOUS', 'no answer by the deadline: nobody can say');
    cmp_ok($mute->{ms}, '>=', 690, 'not before the deadline');
    cmp_ok($mute->{ms}, '<', 800, 'and not long after it');
    is($d->call('find', key => 'mute')->{result}, 'OK', 'it had been made');
};

subtest 'a statement that is delayed beyond its withdrawal' => sub {
    # The row appears, is withdrawn, and a late duplicate of a lost reserve would find the key free: it cannot be told
    # from a new one, so the store says maybe=1 for everything that was sent and not answered.
    my $wire = Idem::Cut->new($pg);
    my $far = Idem::Driver->new(conninfo => $wire->conninfo);
    $far->call('reserve', key => 'warm3');
    $pg->do('UPDATE idempotency_control SET writer_epoch = 5');
    $wire->arm('cut');
    my $fenced = $far->call('reserve', key => 'late', deadline => 5000);
    is($fenced->{result}, 'FENCED', 'the second sending says what is');
    is($fenced->{maybe}, 1, 'the first may still come');
    $pg->do('UPDATE idempotency_control SET writer_epoch = 1');
};

done_testing;
