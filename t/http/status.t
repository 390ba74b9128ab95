# The operator's page: counted exactly, by all children, over a graceful restart; in three forms from one set of numbers.
use strict;
use warnings;
use Idem::Test;

my $t = Idem::Test->new(config => protected('/charges', 'charges.create') . <<'CONF');
<Location "/status">
    @AUTH@
    SetHandler idempotency-status
</Location>
CONF
my $c = $t->client;
my $c0 = $t->client->with(user => undef);
is($c0->get('/status')->status, 401, 'the page is the operator\'s');

sub counted { return $c->get('/status?format=json')->json }

# A request is counted when it is logged, which may be a moment after its answer.
sub counts_become {
    my ($name, %expected) = @_;
    my $last;
    wait_for(sub { $last = counted()->{requests}; !grep { $last->{$_} != $expected{$_} } keys %expected }, 10);
    is_deeply({ map { $_ => $last->{$_} } keys %expected }, \%expected, $name);
}

my $key = fresh_key();
my @answers = $t->client->parallel(map { [ POST => '/charges', key => fresh_key(), body => '{}' ] } 1 .. 40);
is((grep { $_->status == 200 } @answers), 40, 'forty run');
$c->post('/charges', key => $key, body => '{}');
$c->post('/charges', key => $key, body => '{}') for 1 .. 3;
$c->post('/charges', key => $key, body => '{"x":1}');
$c->post('/charges', body => '{}');
$t->backend->behave(status => 500);
my $doubtful = $c->post('/charges', key => fresh_key(), body => '{}');
$t->backend->behave(status => 429);
$c->post('/charges', key => fresh_key(), body => '{}');
$t->backend->behave;
my %expected = (executed => 41, replayed => 3, unknown => 1, rejected => 1, 'key-reused' => 1, 'key-missing' => 1, 'in-progress' => 0);
counts_become('what every child did', %expected);

subtest 'JSON' => sub {
    my $status = counted();
    is($status->{store}, 'answers', 'the registry');
    is_deeply([ map { $_->{operation} } @{ $status->{unknown} } ], [ $doubtful->operation ], 'what is unknown, by name');
    is($status->{unknown}[0]{route}, 'charges.create', 'and route');
    ok($status->{store_microseconds}{reserve_p50} > 0, 'times of the registry');
    ok($status->{store_microseconds}{reserve_p99} >= $status->{store_microseconds}{reserve_p50}, 'in their order');
    ok(wait_for(sub { @{ counted()->{children} } && !grep { $_->{breaker} ne 'closed' } @{ counted()->{children} } }, 10), 'the children');
};

subtest 'the page' => sub {
    my $page = $c->get('/status');
    like($page->header('Content-Type'), qr{\Atext/html}, 'is HTML');
    is(scalar(() = $page->body =~ /<svg /g), 4, 'has its charts');
    like($page->body, qr/<rect /, 'with bars');
    like($page->body, qr/${\ $doubtful->operation}/, 'names what is unknown');
    like($page->body, qr/idempotencyctl resolve/, 'and what to do');
    unlike($page->body, qr/<(?:form|button|script)/, 'offers nothing to press');
    unlike($page->body, qr{(?:src|href)="https?:}, 'loads nothing from elsewhere');
};

subtest 'OpenMetrics' => sub {
    my $res = $c->get('/status?format=metrics');
    like($res->header('Content-Type'), qr{\Aapplication/openmetrics-text; version=1\.0\.0}, 'media type');
    my $text = $res->body;
    like($text, qr/\n# EOF\n\z/, 'ends as it must');
    like($text, qr/^idempotency_requests_total\{outcome="executed"\} 41$/m, 'the same numbers');
    # promtool's strict reader of this format wants a time on every sample
    my ($file, $now) = ($t->root . '/metrics', time);
    spew($file, $text =~ s/^([^#\s]\S* \S+)$/$1 $now/mgr, 0644);
    my $said = `promtool tsdb create-blocks-from openmetrics $file @{[ $t->root ]}/tsdb 2>&1`;
    is($?, 0, 'promtool takes it') or diag($said);
};

$t->httpd->graceful;
counts_become('kept over a graceful restart', %expected);
$c->post('/charges', key => $key, body => '{}');
counts_become('and counted on', %expected, replayed => 4);

$t->pg->stop('fast');
my $away;
ok(wait_for(sub { $away = $c->get('/status?format=json'); $away->status == 200 && $away->json->{store} eq 'away' }, 15), 'without the registry it says so');
is($away->json->{requests}{replayed}, 4, 'and still counts');
$t->pg->start;
$t->httpd->allow_log(qr/IDEM\d+: |AH00639|AH00629|AH00630/);
$t->allow_pg_log(qr/terminating connection|starting up|shutting down/);
$t->finish;
