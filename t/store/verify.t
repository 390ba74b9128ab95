# idempotencyctl verify: what cannot be is found, and what can be is not.
use strict;
use warnings;
use Idem::Driver;
use JSON::PP;

my $pg = migrated();
my $d = Idem::Driver->new(pg => $pg);
my %id;
for my $key (qw(plain digest unsettled aging tombstone event running future)) {
    $id{$key} = uuid();
    $d->call('reserve', key => $key, operation => $id{$key});
    $d->call('settle', operation => $id{$key}, code => 201, headers => 'h', body => 'body', digest => pack('H*', '230d8358dc8e8890b4c58deeb62912ee2f20357ae92a5cc861b98e68fe31acb5')) unless $key eq 'running';
}
my ($status, $said) = ctl($pg, 'verify');
is($status, 0, 'a sound registry') or diag($said);
like($said, qr/8 records, no fault/, 'says so');

$pg->do("UPDATE idempotency_records SET response_body = 'other' WHERE operation_id = '$id{digest}';
    UPDATE idempotency_records SET settled_at = NULL WHERE operation_id = '$id{unsettled}';
    UPDATE idempotency_records SET status = 'UNKNOWN', expires_at = NULL WHERE operation_id = '$id{aging}';
    UPDATE idempotency_records SET status = 'EXPIRED' WHERE operation_id = '$id{tombstone}';
    INSERT INTO idempotency_events (tenant_id, operation_id, generation, from_status, to_status, actor) VALUES
        ('t', '$id{event}', 1, 'EXPIRED', 'SUCCEEDED', 'x'), ('t', '$id{future}', 9, 'EXECUTING', 'UNKNOWN', 'x')");
($status, $said) = ctl($pg, 'verify');
is($status, 1, 'a broken one');
like($said, qr/^$id{digest}  the digest does not fit the body$/m, 'a body that was changed');
like($said, qr/^$id{unsettled}  final, and not settled$/m, 'a final that was never settled');
like($said, qr/^$id{aging}  UNKNOWN, and aging$/m, 'what must not age');
like($said, qr/^$id{tombstone}  expired, and the answer is still there$/m, 'an answer that should be gone');
like($said, qr/^$id{event}  an event of a transition that does not exist: EXPIRED to SUCCEEDED$/m, 'a transition that there is not');
like($said, qr/^$id{future}  an event of a generation to come$/m, 'a story from the future');
unlike($said, qr/$id{plain}|$id{running}/, 'and nothing else');
($status, $said) = ctl($pg, 'verify', '--json');
$said =~ s/^idempotencyctl: .*\n//mg;
is_deeply([ sort map { $_->{operation} } @{ decode_json($said) } ], [ sort @id{qw(digest unsettled aging tombstone event future)} ], 'as JSON')
    or diag($said);
($status, $said) = ctl($pg, 'verify', '--after-restore', '2099-01-01');
like($said, qr/^$id{running}  was under way at the time of the backup$/m, 'what a backup has cut off');
is((ctl($pg, 'verify', '--after-restore', 'then'))[0], 2, 'a time that is none');
done_testing;
