# C114: every refusal has a type of its own, a true status, and says what helps. What each body looks like is checked by
# problem() of the harness; here each kind is provoked, with and without a documentation URL and the error member.
use strict;
use warnings;
use Idem::Test;

my $docs = 'https://docs.example/errors';
my $pages = join '', map { "ErrorDocument $_ /page\n" } 400, 403, 409, 410, 413, 422, 500, 503;
my $taster = build_module('taster');
my $t = Idem::Test->new(config => sub {
    my ($t) = @_;
    my $places = join '',
        protected('/charges', 'charges.create', 'IdempotencyMaxBody 1000', 'IdempotencyMaxSnapshot 2000'),
        protected('/expire', 'expire', 'IdempotencyRetention 1s'),
        qq(ScriptAlias "/page" "\@CGI\@"\nScriptAlias "/open" "\@CGI\@"\nScriptAliasMatch "^/shops/" "\@CGI\@"\n), <<'CONF';
<Location "/open">
    IdempotencyRoute open
    IdempotencyTenant server
    IdempotencyPrincipal user
</Location>
<LocationMatch "^/shops/(?<SHOP>[^/]*)$">
    @AUTH@
    IdempotencyRoute "orders of %{MATCH_SHOP}"
    IdempotencyTenant server
    IdempotencyPrincipal user
</LocationMatch>
CONF
    my $second = $t->{second} = free_port();
    return "LoadModule taster_module $taster\nListen 127.0.0.1:$second\n<VirtualHost 127.0.0.1:\@PORT\@>\n    ServerName first\n$pages$places</VirtualHost>\n"
        . "<VirtualHost 127.0.0.1:$second>\n    ServerName second\n    IdempotencyDocs $docs\n    IdempotencyErrorMember Off\n$pages$places</VirtualHost>\n";
});
my $body = '{"amount":10,"secret":"of-the-first"}';

for my $case ([ 'as it comes', $t->client, [] ], [ 'with documentation, without the error member', $t->client->with(port => $t->{second}), [ docs => $docs, error_member => 0 ] ]) {
    my ($name, $c, $how) = @$case;
    subtest $name => sub {
        my %seen;
        my $check = sub {
            my ($res, $slug, @more) = @_;
            problem($res, $slug, @$how, @more);
            unlike($res->body, qr/SELECT|INSERT|\/tmp\/|\.c\b|libpq|idempotency_records/, "$slug: nothing of the inside");
            push @{ $seen{ $res->json->{type} } }, $slug;
        };
        my $key = fresh_key();
        my @secrets = ('of-the-first', $key, 'charges.create');
        $check->($c->post('/charges', body => $body), 'key-missing');
        $check->($c->post('/charges', body => $body, headers => [ 'Idempotency-Key' => '"broken' ]), 'key-malformed', secrets => ['broken']);
        $check->($c->post('/shops/', body => $body, key => $key), 'route-unresolved');
        $check->($c->post('/open', body => $body, key => $key), 'identity-missing');
        $check->($c->post('/charges', body => 'x' x 1001, key => $key), 'payload-too-large');
        $check->($c->post('/charges', body => $body, key => $key, headers => [ 'X-Taste' => 'post_read brigade 10' ]), 'body-consumed');

        $t->backend->behave(hold => 1, body => 'reply-of-the-first');
        my $effects = () = $t->backend->effects;
        my $running = $c->send(POST => '/charges', key => $key, body => $body);
        ok(wait_for(sub { (() = $t->backend->effects) > $effects }), 'the application runs');
        $check->($c->post('/charges', body => $body, key => $key), 'in-progress', operation => 1, secrets => \@secrets);
        $t->backend->release;
        is($running->response->status, 200, 'and ends');
        $t->backend->behave;
        $check->($c->post('/charges', body => '{}', key => $key), 'key-reused', operation => 1, secrets => [ @secrets, 'reply-of-the-first' ]);

        $key = fresh_key();
        $t->backend->behave(status => 500, body => 'reply-of-the-first');
        $c->post('/charges', key => $key, body => $body);
        $t->backend->behave;
        $check->($c->post('/charges', key => $key, body => $body), 'outcome-unknown', operation => 1, secrets => [ 'reply-of-the-first', $key ]);

        $key = fresh_key();
        $c->post('/charges?size=3000', key => $key, body => $body);
        $check->($c->post('/charges?size=3000', key => $key, body => $body), 'response-not-stored', operation => 1);

        $key = fresh_key();
        $c->post('/expire', key => $key, body => $body);
        my $expired;
        ok(wait_for(sub { $expired = $c->post('/expire', key => $key, body => $body); $expired->status != 200 }, 5), 'kept for a second');
        $check->($expired, 'key-expired', operation => 1, secrets => [$key]);
        like($expired->json->{outcome}, qr/\Asucceeded\z/i, 'key-expired: outcome');
        like($expired->json->{settled}, qr/\A\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d/, 'key-expired: when it was settled');

        ($t->ctl('epoch', 'raise'))[0] == 0 or $t->pg->do('UPDATE idempotency_control SET writer_epoch = writer_epoch + 1');
        $check->($c->post('/charges', key => fresh_key(), body => $body), 'writer-fenced');
        $t->pg->do('UPDATE idempotency_control SET writer_epoch = 1');
        is($c->post('/charges', key => fresh_key(), body => $body)->status, 200, 'no longer fenced');

        $t->pg->stop('fast');
        $check->($c->post('/charges', key => fresh_key(), body => $body), 'store-unavailable');
        $t->pg->start;
        ok(wait_for(sub { $c->post('/charges', key => fresh_key(), body => $body)->status == 200 }, 20), 'the store is back');
        is((grep { @{ $seen{$_} } > 1 } keys %seen), 0, 'every kind has a type of its own');
        is(scalar(keys %seen), 13, 'thirteen kinds');
    };
}

is((grep { $_->{path} eq '/page' } $t->backend->effects), 0, 'no ErrorDocument had a word in it');
$t->httpd->expect_log(qr/IdempotencyPrincipal.*user/, qr/body/);
$t->httpd->allow_log(qr/idempotency:(?:error|warn|crit).*(?:store|database|PostgreSQL|registry|fenced|epoch|UNKNOWN|unknown)/i, qr/dbd:/);
$t->allow_pg_log(qr/terminating connection due to administrator command|the database system is (?:shutting down|starting up)/);
$t->finish;
