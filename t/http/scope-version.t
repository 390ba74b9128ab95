# Tenant and principal are made of something else from now on: under load, and nothing runs twice.
use strict;
use warnings;
use Idem::Test;

my $claim = "function claim(r)\n    if r.headers_in['X-Claim'] then r.subprocess_env['CLAIM'] = r.headers_in['X-Claim'] end\n    return apache2.DECLINED\nend\n";
my %who = (
    v1 => "IdempotencyTenant server\n    IdempotencyPrincipal user",
    v2 => "IdempotencyScopeVersion v2\n    IdempotencyTenant env:CLAIM\n    IdempotencyPrincipal env:CLAIM user\n    IdempotencyFormerTenant server\n    IdempotencyFormerPrincipal user",
    end => "IdempotencyScopeVersion v2\n    IdempotencyTenant env:CLAIM\n    IdempotencyPrincipal env:CLAIM user",
);
my $text = sub { my ($t, $version) = @_; return protected({ who => "$who{$version}\n    LuaHookAuthChecker $t->{root}/claim.lua claim" }, '/charges', 'charges.create', 'IdempotencyLease 2s') };
my $t = Idem::Test->new(modules => ['lua'], config => sub { spew($_[0]->root . '/claim.lua', $claim, 0644); return $text->($_[0], 'v1') });
# a second server, which gets its new configuration later
my $other = Idem::Test->new(modules => ['lua'], pg => $t->pg, config => sub { spew($_[0]->root . '/claim.lua', $claim, 0644); return $text->($_[0], 'v1') });
$_->httpd->allow_log(qr/IDEM\d+: IdempotencyRoute \S+: its sources were/, qr/AH03490: scoreboard is full/) for $t, $other;
$t->allow_pg_log(qr{ERROR:  canceling statement due to lock timeout}); # requests that wait behind the change are sent again
my $body = '{"amount":10}';

# The same host name for both: it is part of the request.
sub send_to { my ($server, $key) = @_; return $server->client->send(POST => '/charges?sleep=0.05', key => $key, body => $body, host => 'localhost', headers => [ 'X-Claim' => 'iss' ]) }
sub ask { return send_to(@_)->response }
my %runs;

sub count { my %seen; $seen{ $_->{key} =~ s/"//gr }++ for $t->backend->effects, $other->backend->effects; return \%seen }

# Each key to both servers at once, and once more.
sub load {
    my ($name, @keys) = @_;
    my @sent = map { (send_to($t, $_), send_to($other, $_)) } @keys;
    my %bad;
    $bad{$_}++ for grep { $_ != 200 && $_ != 409 } map { $_->response->status } @sent;
    is_deeply(\%bad, {}, "$name: each runs, replays or waits");
}

my @filled = map { "filled-$_" } 1 .. 30;
ask($t, $_) for @filled;
my @keys = map { "during-$_" } 1 .. 40;

load('before', @keys[ 0 .. 9 ]);
$t->httpd->graceful(config => $t->expand($text->($t, 'v2')));
load('one server has the new configuration', @keys[ 5 .. 19 ], @filled[ 0 .. 4 ]);
is($t->record_count("scope_version <> 'v1'"), 0, 'nobody writes another version');
ok(wait_for(sub { $t->pg->value('SELECT count(*) FROM idempotency_owners') >= 2 }) && $t->httpd->log !~ /its sources were/, 'and no warning that records would not be found');
$other->httpd->graceful(config => $other->expand($text->($other, 'v2')));
my @early = map { (send_to($t, $_), send_to($other, $_)) } @keys[ 15 .. 29 ];
my ($status, $said) = $t->ctl('scope-version', 'v2');
is($status, 0, 'scope-version v2') or diag($said);
load('after the change', @keys[ 25 .. 39 ], @filled[ 5 .. 9 ]);
$_->response for @early;

my $seen = count();
is_deeply([ grep { ($seen->{$_} // 0) != 1 } @filled, @keys ], [], 'every key has run once');
my $before = join ',', map { "$_=$seen->{$_}" } sort keys %$seen;
is(join(',', grep { $_ != 200 } map { ask($_ % 2 ? $t : $other, $keys[$_])->status } 0 .. $#keys), '', 'all are replayed');
is(join(',', grep { $_ != 200 } map { ask($_ % 2 ? $t : $other, $filled[$_])->status } 0 .. $#filled), '', 'what was there before, too');
$seen = count();
is(join(',', map { "$_=$seen->{$_}" } sort keys %$seen), $before, 'and nothing has run again');
ask($t, 'new');
is_deeply([ map { "$_->{scope_version} $_->{tenant_id} " . ($_->{principal_id} =~ s/\x1e/+/r) } $t->records("idem_key = 'new'") ], ['v2 iss iss+a'], 'new records are of the new version');

subtest 'a server that was forgotten' => sub {
    $other->httpd->graceful(config => $other->expand($text->($other, 'v1')));
    ran($other, 0, 'with the old configuration', sub { problem(ask($other, 'forgotten'), 'writer-fenced') });
    is(ask($other, $filled[0])->status, 200, 'still replays what it knows');
    $t->httpd->graceful(config => $t->expand($text->($t, 'end')));
    is(ask($t, 'new')->status, 200, 'without the former sources');
    ok(ask($t, 'new')->replayed, 'the new version is replayed');
};

is(($t->ctl('scope-version', 'two'))[0], 2, 'what is no version');
$other->finish(more => 1);
$t->finish;
