# idempotencyctl erase: everything of a tenant, and nothing of another.
use strict;
use warnings;
use Idem::Test;
use JSON::PP ();

my $who = sub { "IdempotencyTenant const:$_[0]\n    IdempotencyPrincipal user" };
my $t = Idem::Test->new(config => sub {
    join '', map { (protected({ who => $who->($_) }, "/$_/charges", 'charges.create'), protected({ who => $who->($_) }, "/$_/short", 'short', 'IdempotencyRetention 0s')) } qw(acme acme2 other);
});
my $c = $t->client;
my $body = '{"amount":10}';
my $erase = sub { my ($status, $said) = $t->ctl('erase', '--json', @_); return ($status, eval { JSON::PP->new->utf8->decode(($said =~ /^(\{.*\})$/m)[0] // '') } // {}, $said) };
my $rest = sub { map { $t->pg->value("SELECT count(*) FROM idempotency_$_ WHERE tenant_id = 'acme'") } qw(records events effects outbox) };

$c->post("/$_/short", key => 'past', body => $body) for qw(acme acme2 other);
my $kept = $c->post('/acme/charges', key => 'kept', body => $body);
my $doubt = $c->post('/acme/charges?status=500', key => 'doubt', body => $body);
is(($t->records("idem_key = 'doubt'"))[0]{status}, 'UNKNOWN', 'one of each kind');
# twelve hundred past records and what hangs on one of them: more than two batches
$t->pg->do(q{INSERT INTO idempotency_records SELECT (jsonb_populate_record(r, jsonb_build_object('idem_key', 'n' || n, 'operation_id', gen_random_uuid()))).* FROM idempotency_records r, generate_series(1, 1200) n WHERE tenant_id = 'acme' AND idem_key = 'past'});
my $operation = $t->pg->value("SELECT operation_id FROM idempotency_records WHERE tenant_id = 'acme' AND idem_key = 'n7'");
$t->pg->do("INSERT INTO idempotency_events (tenant_id, operation_id, generation, from_status, to_status, actor) VALUES ('acme', '$operation', 1, 'EXECUTING', 'UNKNOWN', 'test'), ('acme', gen_random_uuid(), 1, 'EXECUTING', 'NONE', 'test')");
$t->pg->do("INSERT INTO idempotency_outbox (tenant_id, operation_id, generation, topic, payload, created_at) VALUES ('acme', '$operation', 1, 't', 'x', now())");
$t->pg->do("INSERT INTO idempotency_effects (tenant_id, operation_id, generation, effect, provider, downstream_key, replayable, begun_at) VALUES ('acme', '$operation', 1, 'e', 'p', 'd', false, now())");

subtest 'what is past its retention' => sub {
    my ($status, $json, $said) = $erase->('--tenant', 'acme');
    is($status, 1, 'there are others, which stay');
    is($json->{records}, 1201, 'the past ones are gone');
    is($json->{left}, 2, 'two are left');
    like($said, qr/^\Q@{[ $doubt->operation ]}\E UNKNOWN$/m, 'what is not final is named');
    like($said, qr/--now/, 'and how to go on');
    my ($records, @more) = $rest->();
    is($records, 2, 'in the store');
    is("@more", '0 0 0', 'events, attempts and messages are gone with their records');
    is_replay($c->post('/acme/charges', key => 'kept', body => $body), $kept, 'what is kept is replayed');
};

subtest '--now' => sub {
    $t->backend->behave(hold => 1);
    my $before = () = $t->backend->effects;
    my $running = $c->send(POST => '/acme/charges', key => 'running', body => $body);
    wait_for(sub { (() = $t->backend->effects) > $before }) or die "it does not run\n";
    my ($status, $json, $said) = $erase->('--tenant', 'acme', '--now');
    is($status, 1, 'an operation that runs stays');
    is($json->{left}, 1, 'it alone');
    like($said, qr/^\Q@{[ $doubt->operation ]}\E UNKNOWN$/m, 'what is not final is named before it goes');
    $t->backend->release;
    is($running->response->status, 200, 'it ends');
    $t->backend->behave;
    ($status, $json) = $erase->('--tenant', 'acme', '--now');
    is($status, 0, 'then everything goes');
    is(join(' ', $rest->()), '0 0 0 0', 'nothing is left');
};

is($t->record_count("tenant_id IN ('acme2', 'other')"), 2, 'other tenants, a like name among them, have what they had');
is(($t->ctl('erase'))[0], 2, 'a tenant must be named');
$t->finish;
