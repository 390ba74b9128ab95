# A record answers whatever release made it: nothing that is kept or compared knows the module's number. And what a later
# release may have laid out otherwise is refused by its own numbers, never misread.
use strict;
use warnings;
use Idem::Test;

my $config = sub {
    my ($t) = @_;
    spew($t->root . '/contract.json', '{"x-revision": "7", "type": "object", "properties": {"amount": {"type": "integer"}}}', 0644);
    # records are changed behind the server's back, which a cache of answers sees half a minute later
    return join '', "IdempotencyReplayCache None\n", protected('/raw', 'raw'), protected('/json', 'json', 'IdempotencyFingerprint json'),
        protected('/form', 'form', 'IdempotencyFingerprint form', 'IdempotencyFingerprintQuery a', 'IdempotencyFingerprintHeaders X-Mode'),
        protected('/contract', 'contract', "IdempotencyFingerprint json\n    IdempotencyPayloadContract $t->{root}/contract.json"),
        protected('/repeatable', 'repeatable', 'IdempotencyEffect repeatable', 'IdempotencyLease 1s');
};
my $t = Idem::Test->new(config => $config);
my $c = $t->client;

# Another release in the place of this one: a new file, as the old one is mapped into processes that still run.
sub install {
    my ($file) = @_;
    my $place = $t->root . '/mod_idempotency.so';
    File::Copy::copy(needed($file), "$place.new") or die "copy: $!\n";
    chmod 0644, "$place.new";
    rename "$place.new", $place or die "rename: $!\n";
    $t->httpd->restart;
}
sub releases { return [ $t->httpd->log =~ /IDEM0002: mod_idempotency (\S+)/g ] }
my @requests = (
    [ '/raw?x=1', 'text/plain', "octets \0\xff", '/raw?x=1', 'text/plain', "octets \0\xff" ],
    [ '/json', 'application/json', '{"a":1,"b":"\u00e9"}', '/json', 'application/json', " {\"b\":\"\xc3\xa9\", \"a\":1}" ],
    [ '/form?a=1&z=2', 'application/x-www-form-urlencoded', 'p=a+b', '/form?z=3&a=1', 'application/x-www-form-urlencoded', 'p=a%20b' ],
    [ '/contract', 'application/json', '{"amount":10}', '/contract', 'application/json', '{"amount":1.0e1}' ],
    [ '/json?status=402', 'application/json', '{"a":1}', '/json?status=402', 'application/json', '{ "a":1}' ],
);

# Their keys and first answers.
sub begin { my @first = map { my $r = $_; my $key = fresh_key(); [ $key, $c->post($r->[0], key => $key, type => $r->[1], body => $r->[2], headers => [ 'X-Mode' => 'm' ]) ] } @requests; return \@first }

sub answered {
    my ($name, $first) = @_;
    subtest $name => sub {
        ran($t, 0, 'the retries', sub {
            for my $n (0 .. $#requests) {
                my ($r, $key, $answer) = ($requests[$n], @{ $first->[$n] });
                is_replay($c->post($r->[3], key => $key, type => $r->[4], body => $r->[5], headers => [ 'X-Mode' => 'm' ]), $answer, $r->[0]);
                my $other = $c->post($r->[3], key => $key, type => $r->[4], body => $r->[5] =~ s/1|p|octets/2/r, headers => [ 'X-Mode' => 'm' ]);
                problem($other, 'key-reused', operation => 1);
                like($other->json->{detail}, qr/What differs: payload\./, 'and names the group') if $r->[0] ne '/contract';
            }
        });
    };
}

my ($status, $said) = $t->ctl('--version');
my ($this) = $said =~ /^idempotencyctl (\S+)$/ or die "no version: $said";
is_deeply(releases(), [$this], 'this release');
my $older = begin();
my $doubt = fresh_key();
is($c->post('/raw?status=500', key => $doubt, body => 'x')->status, 500, 'one in doubt');

install(out_dir() . '/next/mod_idempotency.so');
is_deeply(releases(), [ $this, '99.0.0' ], 'the next release');
answered('records of this release, answered by the next', $older);
problem($c->post('/raw?status=500', key => $doubt, body => 'x'), 'outcome-unknown', operation => 1);
my $newer = begin();
# its owner is gone for good
my $lapsed = fresh_key();
$c->post('/repeatable', key => $lapsed, body => 'x');
$t->pg->do("UPDATE idempotency_records SET status = 'EXECUTING', outcome = NULL, owner = NULL, settled_at = NULL, expires_at = NULL, tombstone_until = NULL WHERE idem_key = '$lapsed'");

install(out_dir() . '/mod_idempotency.so');
is_deeply(releases(), [ $this, '99.0.0', $this ], 'and this one again');
answered('records of the next release, answered by this one', $newer);
ran($t, 1, 'a record that the next release has left behind', sub { is($c->post('/repeatable', key => $lapsed, body => 'x')->status, 200, 'is taken over') });
is_deeply([ map { $t->pg->value("SELECT count(DISTINCT $_) FROM idempotency_records WHERE idem_key IN ('$older->[1][0]', '$newer->[1][0]')") } qw(scope_version contract recipe fingerprint) ],
    [ 1, 1, 1, 1 ], 'one request has one scope version, contract, recipe and fingerprint in both');

# What a later release may write.
sub changed {
    my ($name, $set, $check) = @_;
    subtest $name => sub {
        my $key = begin()->[1][0];
        $t->pg->do("UPDATE idempotency_records SET $set WHERE idem_key = '$key'");
        ran($t, 0, 'a retry', sub { $check->($key, $c->post('/json', key => $key, type => 'application/json', body => '{"a":1,"b":"\u00e9"}')) });
        is($t->record_count("idem_key = '$key' AND status = 'SUCCEEDED'"), 1, 'the record is as it was');
    };
}
my $unknown = sub {
    my ($key, $retry) = @_;
    problem($retry, 'outcome-unknown', operation => 1);
    problem($c->post('/json', key => $key, type => 'application/json', body => '{}'), 'outcome-unknown', operation => 1);
    my $request = $t->root . '/request';
    spew($request, "POST /json HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\r\n{}", 0644);
    my ($refused, $words) = $t->ctl('explain', $retry->operation, '--request', $request);
    is($refused, 1, 'explain refuses, too');
    like($words, qr/not known to this release/, 'with the reason');
};
changed('a recipe of another layout', "recipe = convert_to(replace(convert_from(recipe, 'UTF8'), '1 json', '2 json'), 'UTF8')", $unknown);
changed('a recipe with one word more', "recipe = recipe || convert_to(' x', 'UTF8')", $unknown);
changed('a mode that nobody knows yet', "recipe = convert_to(replace(convert_from(recipe, 'UTF8'), '1 json', '1 cbor'), 'UTF8')", $unknown);
changed('another contract', "contract = 'http.idempotency.v2'", $unknown);
changed('a snapshot of another layout', "response_headers = '\\x02'::bytea || substr(response_headers, 2)", sub {
    my ($key, $retry) = @_;
    problem($retry, 'response-not-stored', operation => 1);
    is($retry->json->{original_status}, 200, 'with what is known');
});
$t->httpd->expect_log(qr/IDEM0602: .*unknown layout version/);
changed('parts of another layout', "fingerprint_parts = '\\x02'::bytea || substr(fingerprint_parts, 2)", sub {
    my ($key, $retry) = @_;
    is($retry->status, 200, 'what is the same is still known') and ok($retry->replayed, 'and replayed');
    my $other = $c->post('/json', key => $key, type => 'application/json', body => '{}');
    problem($other, 'key-reused', operation => 1);
    unlike($other->json->{detail}, qr/What differs/, 'nothing is said of groups');
});
$t->finish;
