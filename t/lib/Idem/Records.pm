# Many records at once, past the module, for tests and benches of what has to work beside them.
package Idem::Records;
use strict;
use warnings;
use Exporter 'import';
our @EXPORT_OK = qw(make_records);

my $at_once = 50_000; # one statement has to end in the time that Idem::Postgres gives it

# make_records(pg, how many, column => SQL over i, ...): final ones, a day from their end, unless said otherwise.
sub make_records {
    my ($pg, $many, %value) = @_;
    my %row = (scope_version => q('v1'), tenant_id => q('t'), principal_id => q('p' || i % 100), route => q('r'), api_revision => q('1'), ns => q('u:'),
        idem_key => q('key' || i), contract => q('c'), fingerprint => q(sha256('')), recipe => q(''), fingerprint_parts => q(''),
        operation_id => q(('00000000-0000-7000-8000-' || lpad(to_hex(i), 12, '0'))::uuid), owner_generation => 1, owner => 'NULL',
        owner_token => 'gen_random_uuid()', owned_at => 'now()', lease => q('1 min'), max_run => q('1 h'), writer_epoch => 1, effect_mode => q('external'),
        retention => q('1 day'), tombstone => q('1 day'), reuse_allowed => 'true', body_limit => 1048576, status => q('SUCCEEDED'), outcome => q('succeeded'),
        response_code => 201, response_headers => q(''), response_body => q(convert_to(repeat('b', 400), 'UTF8')), response_digest => q(sha256(convert_to(repeat('b', 400), 'UTF8'))),
        created_at => 'now()', settled_at => 'now()', expires_at => q(now() + interval '1 day'), tombstone_until => q(now() + interval '2 days'),
        sweep_at => q(now() + interval '1 day 1 min'), %value);
    my @names = sort keys %row;
    for (my $from = 1; $from <= $many; $from += $at_once) {
        my $to = $from + $at_once - 1 < $many ? $from + $at_once - 1 : $many;
        $pg->do(sprintf 'INSERT INTO idempotency_records (%s) SELECT %s FROM generate_series(%d, %d) i', join(', ', @names), join(', ', @row{@names}), $from, $to);
    }
    $pg->do('VACUUM ANALYZE idempotency_records');
}

1;
