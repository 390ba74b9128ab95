# The tool tells a client's author why two requests are the same, or not: by the same recipe as the module, and from what
# a record keeps, which is not the data.
use strict;
use warnings;
use Idem::Test;
use JSON::PP;

my $t = Idem::Test->new(config => protected('/charges', 'charges.create', 'IdempotencyFingerprint json'));
my $c = $t->client;
my $root = $t->root;

sub request_file {
    my ($name, $target, $body, @headers) = @_;
    my $text = join("\r\n", "POST $target HTTP/1.1", 'Host: localhost:' . $t->httpd->port, 'Content-Type: application/json', @headers) . "\r\n\r\n$body";
    spew("$root/$name", $text, 0644);
    return "$root/$name";
}

my $key = fresh_key();
my $first = $c->post('/charges?b=1', key => $key, type => 'application/json', body => '{"amount":10,"secret":"s3cr3t"}');
is($first->status, 200, 'an operation');
my $same = request_file('same', '/charges?b=1', '{ "secret":"s3cr3t", "amount":10 }');
my $other = request_file('other', '/charges?b=2', '{"amount":11,"secret":"s3cr3t"}');

subtest 'explain' => sub {
    my ($status, $said) = $t->ctl('explain', $first->operation, '--request', $same);
    is($status, 0, 'done') or diag($said);
    like($said, qr/^the same request$/m, 'another order of members');
    ($status, $said) = $t->ctl('explain', $first->operation, '--request', $other);
    like($said, qr/what differs: query, payload$/m, 'names what differs');
    unlike($said, qr/s3cr3t/, 'and shows nothing of it');
    ($status, $said) = $t->ctl('explain', '--json', $first->operation, '--request', $other);
    is_deeply({ %{ decode_json($said) }{qw(same differing)} }, { same => JSON::PP::false, differing => 'query, payload' }, 'as JSON');
    ($status) = $t->ctl('explain', '00000000-0000-7000-8000-000000000000', '--request', $same);
    is($status, 1, 'an operation that never was');
    ($status) = $t->ctl('explain', 'nonsense', '--request', $same);
    is($status, 2, 'nonsense');
};

subtest 'fingerprint' => sub {
    my ($status, $said) = $t->ctl('fingerprint', '--request', $same, '--payload', 'json');
    is($status, 0, 'done') or diag($said);
    like($said, qr/^path +\/charges$/m, 'the path');
    like($said, qr/^query +b=1$/m, 'the query');
    like($said, qr/^\{"amount":10,"secret":"s3cr3t"\}$/m, 'the canonical payload');
    my ($digest) = $said =~ /^fingerprint +([0-9a-f]{64})$/m;
    is($digest, $t->pg->value("SELECT encode(fingerprint, 'hex') FROM idempotency_records WHERE operation_id = '@{[ $first->operation ]}'"), 'the fingerprint that the module keeps');
    my $raw = ($t->ctl('fingerprint', '--request', $same, '--json'))[1];
    is(decode_json($raw)->{canonical}, '{ "secret":"s3cr3t", "amount":10 }', 'raw is as it is');
    ($status, $said) = $t->ctl('fingerprint', '--request', request_file('twice', '/x', '{"a":1,"a":2}'), '--payload', 'json');
    is($status, 1, 'a payload that is refused');
    like($said, qr/same name/, 'with its reason');
    for my $wrong ([], [ '--request', "$root/none" ], [ '--request', $same, '--payload', 'xml' ], [ '--target', '/x', '--contract', $same ], [ '--request', $same, '--nonsense' ]) {
        is(($t->ctl('fingerprint', @$wrong))[0], 2, "wrong usage: @$wrong");
    }
};
$t->finish;
