# What the application is told of the operation, and what a client cannot tell it.
use strict;
use warnings;
use Idem::Test;

my @spoofed = ('Idempotency-Operation', 'Idempotency-Operation-Id', 'Idempotency_Operation_Id', 'Idempotency-Operation-Extra', 'Idempotency-Generation', 'Idempotency_Generation',
    'Idempotency-Downstream-Key', 'idempotency_downstream-key', 'Idempotency-Replayed', 'Idempotency_Replayed', 'Idempotency-Outcome', 'Idempotency_Outcome');
my $t = Idem::Test->new(backends => [qw(cgi proxy fpm)], config => join '',
    (map { ($_->[1], protected({ by => $_->[0] }, "/$_->[0]", "route-$_->[0]", 'IdempotencyKey Optional'),
        protected({ by => $_->[0] eq 'fpm' ? 'none' : $_->[0] }, $_->[0] eq 'fpm' ? '/fpm/quiet' : "/quiet-$_->[0]", "quiet-$_->[0]", 'IdempotencyForwardKey Off')) }
        [ 'cgi', '' ], [ 'proxy', '' ], [ 'fpm', '' ]),
    qq(ScriptAlias "/free" "\@CGI\@"\n));
my $c = $t->client;
my $uuid = qr/\A[0-9a-f]{8}-[0-9a-f]{4}-([0-9a-f])[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}\z/;

my %place = (cgi => [ '/cgi', '/quiet-cgi' ], proxy => [ '/proxy', '/quiet-proxy' ], fpm => [ '/fpm/orders/1', '/fpm/quiet/1' ]);
for my $by (sort keys %place) {
    my ($place, $quiet) = @{ $place{$by} };
    subtest $by => sub {
        my $res = $c->post($place, key => fresh_key(), body => '{}');
        my $env = $res->json->{env};
        is($env->{HTTP_IDEMPOTENCY_OPERATION_ID}, $res->operation, 'request header: operation');
        is($env->{HTTP_IDEMPOTENCY_GENERATION}, 1, 'request header: generation');
        my $downstream = $env->{HTTP_IDEMPOTENCY_DOWNSTREAM_KEY};
        like($downstream, $uuid, 'request header: downstream key');
        is(($downstream =~ $uuid)[0], 8, 'a UUIDv8');
        isnt($downstream, $res->operation, 'not the operation itself');
        if ($by ne 'proxy') {
            my %want = (OPERATION_ID => $res->operation, GENERATION => 1, CONTRACT => 'http.idempotency.v1', ROUTE => "route-$by", DOWNSTREAM_KEY => $downstream);
            is($env->{"IDEMPOTENCY_$_"}, $want{$_}, "environment: $_") for sort keys %want;
        }
        is($c->post($place, key => fresh_key(), body => '{}')->json->{env}{HTTP_IDEMPOTENCY_DOWNSTREAM_KEY} eq $downstream ? 'same' : 'other', 'other', 'another operation has another downstream key');
    };
    subtest "C026 the key itself: $by" => sub {
        my $key = fresh_key();
        is($c->post($place, key => $key, body => '{}')->json->{key}, qq("$key"), 'is passed on by default, as the client wrote it');
        is($c->post($place, headers => [ 'Idempotency-Key' => "$key-bare" ], body => '{}')->json->{key}, "$key-bare", 'bare as well');
        my ($first, $second);
        ran($t, 1, 'IdempotencyForwardKey Off', sub { ($first, $second) = map { $c->post($quiet, key => $key, body => '{}') } 1 .. 2 });
        is($first->json->{key}, undef, 'is not passed on');
        is($first->json->{env}{HTTP_IDEMPOTENCY_OPERATION_ID}, $first->operation, 'the operation is');
        is_replay($second, $first, 'a retry');
    };
    subtest "a client that pretends: $by" => sub {
        my @lies = map { ($_ => 'lie') } @spoofed;
        for my $keyed (1, 0) {
            my $res = $c->post($place, $keyed ? (key => fresh_key()) : (), body => '{}', headers => \@lies);
            is($res->status, 200, 'runs');
            my $env = $res->json->{env};
            is(join(' ', grep { ($env->{$_} // '') =~ /lie/ } sort keys %$env), '', ($keyed ? 'keyed' : 'unkeyed') . ': nothing of it arrives');
        }
    };
}

subtest 'in places without a route of the same server' => sub {
    my $res = $c->post('/free', body => '{}', key => 'k', headers => [ map { ($_ => 'lie') } @spoofed ]);
    my $env = $res->json->{env};
    is(join(' ', grep { ($env->{$_} // '') =~ /lie/ } sort keys %$env), '', 'nothing of it arrives');
    is($res->json->{key}, '"k"', 'but the key does');
};

$t->finish;
