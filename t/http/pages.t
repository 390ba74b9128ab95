# The module's own pages: a caller's operation, and the published policy. And the mode that only replays.
use strict;
use warnings;
use Idem::Test;
use JSON::PP;

sub config {
    my (@mode) = @_;
    return protected('/charges', 'charges.create', 'IdempotencyStatusPath /operations/', 'IdempotencyRetention 2d', @mode) . <<'CONF';
<Location "/operations">
    @AUTH@
    SetHandler idempotency-operation
    IdempotencyTenant server
    IdempotencyPrincipal user
</Location>
<Location "/policy">
    SetHandler idempotency-policy
</Location>
CONF
}
# records are changed behind the server's back, which a cache of answers sees half a minute later
my $t = Idem::Test->new(config => "IdempotencyReplayCache None\n" . config());
my $c = $t->client;

subtest 'a caller looks at an operation' => sub {
    my $key = fresh_key();
    my $first = $c->post('/charges', key => $key, body => '{"secret":1}');
    my $res = $c->get('/operations/' . $first->operation);
    is($res->status, 200, 'is told');
    is($res->header('Content-Type'), 'application/json', 'as JSON');
    my $told = $res->json;
    is($told->{operation}, $first->operation, 'the operation');
    is($told->{state}, 'SUCCEEDED', 'its state');
    is($told->{generation}, 1, 'its generation');
    is($told->{status}, 200, 'its status');
    like($told->{$_}, qr/\A\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ\z/, $_) for qw(created settled expires);
    is($told->{links}{self}, '/operations/' . $first->operation, 'where it is');
    unlike($res->body, qr/secret|$key/, 'nothing of the request');
    is($c->with(user => 'b')->get('/operations/' . $first->operation)->status, 404, "not another's");
    is($c->get('/operations/00000000-0000-7000-8000-000000000000')->status, 404, 'not one that never was');
    is($c->get('/operations/x')->status, 404, 'not nonsense');
    is($c->request(DELETE => '/operations/' . $first->operation)->status, 409, 'a final one cannot be cancelled');
    is($c->with(user => undef)->get('/operations/' . $first->operation)->status, 401, 'nothing without authentication');
};

subtest 'a running one' => sub {
    my $key = fresh_key();
    $t->backend->behave(hold => 1);
    my $running = $c->send(POST => '/charges', key => $key, body => '{}');
    my $busy;
    ok(wait_for(sub { $t->record_count("idem_key = '$key' AND status = 'EXECUTING'") }, 10), 'runs');
    ok(wait_for(sub { $busy = $c->post('/charges', key => $key, body => '{}'); $busy->status == 409 }, 10), 'is in progress');
    my ($path) = ($busy->header('Link') // '') =~ m{<(/operations/[0-9a-f-]+)>; rel="status"};
    ok($path, 'the 409 says where to ask');
    is($c->get($path)->json->{state}, 'EXECUTING', 'and there it is');
    my $gone = $c->request(DELETE => $path);
    is($gone->status, 409, 'what has begun cannot be cancelled');
    is($gone->json->{state}, 'EXECUTING', 'and says why');
    $t->backend->release;
    is($running->response->status, 200, 'it ends');
    $t->backend->behave;
};

subtest 'what has not begun can be cancelled' => sub {
    my $key = fresh_key();
    my $first = $c->post('/charges', key => $key, body => '{}');
    my $operation = $first->operation;
    $t->pg->do("UPDATE idempotency_records SET status = 'RESERVED', outcome = NULL, settled_at = NULL, expires_at = NULL,
        tombstone_until = NULL, response_code = NULL, response_headers = NULL, response_body = NULL, response_digest = NULL
        WHERE operation_id = '$operation'");
    is($c->with(user => 'b')->request(DELETE => "/operations/$operation")->status, 404, "not another's");
    is($c->request(DELETE => "/operations/$operation")->status, 204, 'cancelled');
    is($c->get("/operations/$operation")->status, 404, 'gone');
    is($t->pg->value("SELECT actor FROM idempotency_events WHERE operation_id = '$operation' AND to_status = 'NONE'"), 'caller', 'and remembered');
    ran($t, 1, 'the key', sub { is($c->post('/charges', key => $key, body => '{}')->status, 200, 'may be used again') });
};

subtest 'the policy' => sub {
    my $page = $c->get('/policy');
    is($page->status, 200, 'is published');
    like($page->header('Content-Type'), qr{\Atext/html}, 'as a page');
    like($page->body, qr/charges\.create/, 'names the routes');
    like($page->body, qr/<h3 id="key-reused">/, 'explains the problems');
    my $json = $c->get('/policy?format=json')->json;
    my ($charges) = grep { $_->{path} eq '/charges' } @{ $json->{routes} };
    is($charges->{retention}, '2d', 'says how long answers are kept');
    is($charges->{key_header}, 'Idempotency-Key', 'and which field has the key');
    is(scalar(@{ $json->{problems} }), 15, 'and all problems');
    is($c->request(GET => '/policy', headers => [ Accept => 'application/json' ])->header('Content-Type'), 'application/json', 'as asked for');
    is($c->post('/policy', body => '')->status, 405, 'only to be read');
};

subtest 'a server that only replays' => sub {
    my %key = map { $_ => fresh_key() } qw(done doubtful new);
    my $first = $c->post('/charges', key => $key{done}, body => '{}');
    $t->backend->behave(status => 500);
    is($c->post('/charges', key => $key{doubtful}, body => '{}')->status, 500, 'one of unknown outcome');
    $t->backend->behave;
    my $rows = $t->record_count;
    $t->httpd->graceful(config => $t->expand(config('IdempotencyMode ReadOnly')));
    ran($t, 0, 'all of it', sub {
        is_replay($c->post('/charges', key => $key{done}, body => '{}'), $first, 'a final');
        problem($c->post('/charges', key => $key{done}, body => '{"x":1}'), 'key-reused', operation => 1);
        problem($c->post('/charges', key => $key{new}, body => '{}'), 'writer-fenced');
        problem($c->post('/charges', key => $key{doubtful}, body => '{}'), 'writer-fenced', operation => 1);
    });
    is($t->record_count, $rows, 'no record more');
};
$t->finish;
