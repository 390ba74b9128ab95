# What the error log says of requests at each level: reason, operation, a keyed digest; and never who, which key, or what.
use strict;
use warnings;
use Idem::Test;
use Digest::SHA ();
use MIME::Base64 ();

my $user = 'principal-Zq7';
my $tenant = 'tenant-Zq7';
my @who = (who => "IdempotencyTenant const:$tenant\n    IdempotencyPrincipal user");
sub config {
    my ($level) = @_;
    my $routes = join '', protected({ @who }, '/charges', 'charges', 'IdempotencyFingerprint json', 'IdempotencyMaxBody 2K', 'IdempotencyWait 100ms'),
        protected({ @who }, '/strict', 'strict', 'IdempotencyKeySyntax strict'), protected({ @who }, '/pattern', 'pattern', 'IdempotencyKeyPattern "^[a-z]+$"'),
        protected({ @who }, '/readonly', 'readonly', 'IdempotencyMode ReadOnly'), protected({ @who }, '/shadow', 'shadow', 'IdempotencyMode Shadow'),
        protected({ who => "IdempotencyTenant env:NOBODY\n    IdempotencyPrincipal user" }, '/nobody', 'nobody');
    return "LogLevel $level\n$routes";
}
my $t = Idem::Test->new(config => config('warn'));
spew($t->root . '/users', slurp($t->root . '/users') . "$user:{SHA}" . MIME::Base64::encode_base64(Digest::SHA::sha1($user), ''), 0644);
my $c = $t->client->with(user => $user);
my $number = 0;
my $mark = 0;

# What the log has said since the last time.
sub news { my $log = $t->httpd->log; my $new = substr $log, $mark; $mark = length $log; return $new }

# One request, with secrets everywhere; what it was answered.
sub ask { my ($name, $status, $place, %arg) = @_; my $res = $c->post($place, %arg); is($res->status, $status, $name) or diag($res->body); return $res }

sub all_kinds {
    my $key = 'key-Zq7-aaaaaaaaaa-' . ++$number;
    my $body = '{"payload-Zq7":1}';
    $t->backend->behave(status => 201, body => '{"answer-Zq7":1}', header => 'Location: /location-Zq7');
    ask('fresh', 201, '/charges', key => $key, body => $body);
    my $first = ask('a replay', 201, '/charges', key => $key, body => $body);
    ok($first->replayed, 'is one');
    ask('another body', 422, '/charges', key => $key, body => '{"payload-Zq7":2}');
    ask('no key', 400, '/charges', body => $body);
    ask('no such key', 400, '/charges', headers => [ 'Idempotency-Key' => "$key, other-Zq7" ], body => $body);
    ask('a bare key', 400, '/strict', headers => [ 'Idempotency-Key' => $key ], body => $body);
    ask('a key of another form', 400, '/pattern', key => $key, body => $body);
    ask('a member twice', 400, '/charges', key => "$key-2", body => '{"payload-Zq7":1,"payload-Zq7":2}');
    ask('not JSON', 400, '/charges', key => "$key-2", body => '{"payload-Zq7"');
    ask('too large', 413, '/charges', key => "$key-3", body => '{"a":"' . 'payload-Zq7' x 300 . '"}');
    ask('nobody', 403, '/nobody', key => $key, body => $body);
    ask('only to read', 503, '/readonly', key => $key, body => $body);
    ask('shadow', 201, '/shadow', key => $key, body => $body) for 1, 2;
    $t->backend->behave(status => 500, body => '{"answer-Zq7":1}');
    ask('of unknown outcome', 500, '/charges', key => "$key-4", body => $body);
    my $doubt = ask('its retry', 409, '/charges', key => "$key-4", body => $body);
    $t->backend->behave(hold => 1);
    my $running = $c->send(POST => '/charges', key => "$key-5", body => $body);
    ok(wait_for(sub { grep { ($_->{key} // '') =~ /\Q$key-5\E/ } $t->backend->effects }, 10), 'one runs');
    ask('meanwhile', 409, '/charges', key => "$key-5", body => $body);
    $t->backend->release;
    is($running->response->status, 200, 'is answered');
    $t->backend->behave;
    return $doubt->operation;
}

sub secret_free {
    my ($said, $name) = @_;
    is(join("\n", grep { /Zq7/i } split /\n/, $said), '', "$name: no key, payload, answer, tenant or principal in it");
    is(join("\n", grep { my $line = $_; grep { index($line, substr(sha256($_), 0, 16)) >= 0 } map { "key-Zq7-aaaaaaaaaa-$_" } 1 .. $number } split /\n/, $said), '', "$name: no digest that anybody could make");
}

for my $level ('warn', 'warn idempotency:info', 'warn idempotency:debug') {
    subtest "LogLevel $level" => sub {
        $t->httpd->graceful(config => $t->expand(config($level)));
        news();
        my $doubt = all_kinds();
        my $shadow = qr/IDEM0610: shadow: replayed/;
        wait_for(sub { $t->httpd->log =~ /.*\Q$doubt\E/s && substr($t->httpd->log, $mark) =~ $shadow }, 15) if $level ne 'warn';
        my $said = news();
        secret_free($said, $level);
        my @refusals = $said =~ /IDEM0601: (\S+?)(?:,|$)/mg;
        if ($level eq 'warn') {
            is(scalar @refusals, 0, 'nothing of refusals');
        }
        else {
            is_deeply([ sort @refusals ], [ sort qw(key-reused key-missing key-malformed key-malformed key-malformed payload-rejected payload-rejected
                payload-too-large identity-missing writer-fenced outcome-unknown in-progress) ], 'a line for each refusal');
            like($said, qr/IDEM0601: outcome-unknown, operation \Q$doubt\E, scope [0-9a-f]{16}/, 'with reason, operation and keyed digest');
            like($said, $shadow, 'and one for what shadow saw');
        }
        ($level =~ /debug/ ? \&like : \&unlike)->($said, qr/IDEM0804: operation \S+ settled/, 'a settlement is told at debug only');
    };
}

subtest 'with the registry away' => sub {
    $t->pg->stop('immediate');
    for my $key (map { "key-Zq7-away-$_" } 1 .. 3) {
        ask('refused', 503, '/charges', key => $key, body => '{"payload-Zq7":1}');
    }
    $t->pg->start;
    my $said = news();
    like($said, qr/IDEM0601: store-unavailable/, 'it says that');
    secret_free($said, 'an outage');
};
$t->httpd->allow_log(qr/dbd:|IDEM\d{4}/);
$t->allow_pg_log(qr/database system|terminating connection|connection/);
$t->finish;
