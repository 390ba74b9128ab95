# Answers that httpd cannot send, that contradict themselves, or that only look like a sign: settled by what is certain.
use strict;
use warnings;
use Idem::Test;

my $t = Idem::Test->new(backends => [ 'cgi', 'proxy' ], modules => ['lua'], config => sub {
    my ($t) = @_;
    Idem::Util::spew($t->root . '/forger.lua', "function handle(r)\n    r:err('AH01114: AH01079: AH01257: ' .. r.args)\n    return 503\nend\n", 0644);
    # records are changed behind the server's back, which a cache of answers sees half a minute later
    return "IdempotencyReplayCache None\n" . protected('/cgi', 'cgi') . protected({ by => 'proxy' }, '/proxy', 'proxy')
        . "Alias /forger \"\@ROOT\@/forger.lua\"\n"
        . protected({ by => 'none' }, '/forger', 'forger', 'SetHandler lua-script')
        . protected('/reuse', 'reuse', 'IdempotencyReuse Allow') . protected('/later', 'later');
});
my $body = '{"amount":10}';

subtest 'a field that httpd refuses to send' => sub {
    for my $by ('cgi', 'proxy') {
        my $key = fresh_key();
        my ($first, $second);
        $t->httpd->expect_log(qr/AH02430: Response header 'Content-Disposition'/);
        $t->httpd->expect_log(qr/IDEM0803: no snapshot can be made of this response: has a field value with control octets/);
        ran($t, 1, $by, sub {
            ($first, $second) = map { $t->client->post("/$by?header=Content-Disposition:a%01b", key => $key, body => $body) } 1, 2;
        });
        is($first->status, 500, "$by: httpd says so");
        like($first->operation // '', qr/\A[0-9a-f-]{36}\z/, "$by: and which operation it was");
        is($first->header('Idempotency-Contract'), 'http.idempotency.v1', "$by: under which contract");
        problem($second, 'response-not-stored', operation => 1);
        is($second->json->{outcome}, 'succeeded', "$by: a retry learns how it went");
        is($second->json->{original_status}, 200, "$by: and the backend's status");
        is($second->operation, $first->operation, "$by: of the same operation");
    }
};

subtest 'two different words about the outcome are none' => sub {
    for my $by ('cgi', 'proxy') {
        $t->httpd->expect_log(qr/IDEM0801:/);
        for my $case ([ 'failed', 'succeeded', 'UNKNOWN' ], [ 'none', 'succeeded', 'UNKNOWN' ], ($by eq 'proxy' ? [ 'failed', 'FAILED', 'FAILED_FINAL' ] : ())) {
            my $key = fresh_key();
            my $answer = $t->client->post("/$by?header=Idempotency-Outcome:$case->[0]&outcome=$case->[1]", key => $key, body => $body);
            is($answer->header('Idempotency-Outcome'), undef, "$by, $case->[0] and $case->[1]: not for the client");
            is(($t->records("idem_key = '$key'"))[0]{status}, $case->[2], "$by, $case->[0] and $case->[1]: $case->[2]");
        }
    }
};

subtest 'what a backend logs is no sign that nothing was sent to it' => sub {
    my $key = fresh_key();
    $t->httpd->expect_log(qr/AH01114: AH01079: AH01257: forged/);
    is($t->client->post('/forger?forged', key => $key, body => $body)->status, 503, 'the handler gives up');
    is(($t->records("idem_key = '$key'"))[0]{status}, 'UNKNOWN', 'and nobody knows what it has done');
    problem($t->client->post('/forger?forged', key => $key, body => $body), 'outcome-unknown', operation => 1);
};

subtest 'a recipe that nobody knows any more' => sub {
    my $past = "UPDATE idempotency_records SET recipe = 'of another age', expires_at = now() - interval '2 h', tombstone_until = now() - interval '1 h' WHERE idem_key = ";
    for my $case ([ '/reuse', 1 ], [ '/later', 0 ]) {
        my ($path, $again) = @$case;
        my $key = fresh_key();
        my $first = $t->client->post($path, key => $key, body => $body);
        $t->pg->do("$past'$key'");
        my $second;
        ran($t, $again, $path, sub { $second = $t->client->post($path, key => $key, body => $body) });
        if ($again) {
            is($second->status, 200, 'a key that may be used again is, whatever the old record was made with');
            isnt($second->operation, $first->operation, 'by another operation');
        }
        else {
            problem($second, 'outcome-unknown', operation => 1);
        }
    }
};

$t->finish;
