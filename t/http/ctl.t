# An operator's word: idempotencyctl list, show, resolve, cancel, and what the next retry is told.
use strict;
use warnings;
use Idem::Test;
use JSON::PP;

my $t = Idem::Test->new(config => protected('/charges', 'charges.create', 'IdempotencyLease 2s')
    . protected('/parcels', 'parcels.create') . protected('/brief', 'brief', 'IdempotencyQuiet 1s'));
my $c = $t->client;
$t->pg->do('CREATE ROLE op LOGIN IN ROLE idempotency_admin');

# The tool as an operator runs it: with no more than the operator's role.
sub ctl {
    my @command = @_;
    return run(cmd => [ $t->{ctl}, @command ], env => $t->pg->env(user => 'op'), dir => $t->pg->socket_dir);
}
sub json_of {
    my ($status, $said) = ctl(@_, '--json');
    die "@_: $status $said" if $status;
    $said =~ s/^idempotencyctl: .*\n//mg; # what is said beside
    return JSON::PP->new->decode($said);
}
sub done { my ($name, @command) = @_; my ($status, $said) = ctl(@command); is($status, 0, $name) or diag($said); return $said }
sub refused { my ($name, $want, $like, @command) = @_; my ($status, $said) = ctl(@command); is($status, $want, $name); like($said, $like, "$name: says why"); return }

# A POST that the backend answered 500: of unknown outcome. (key, its response)
sub doubtful {
    my (%arg) = @_;
    my $key = fresh_key();
    $t->backend->behave(status => 500, body => '{"oops":1}', header => 'Location: /half');
    my $res = $c->post($arg{path} // '/charges', key => $key, body => '{"secret":"s3cr3t"}');
    $t->backend->behave;
    is($res->status, 500, 'one of unknown outcome');
    return ($key, $res->operation);
}
sub again { my ($key, $path) = @_; return $c->post($path // '/charges', key => $key, body => '{"secret":"s3cr3t"}') }
my $nothing = '00000000-0000-7000-8000-000000000000';

subtest 'list and show' => sub {
    my $key = fresh_key();
    my $mine = $c->post('/charges', key => $key, body => '{"secret":"s3cr3t"}')->operation;
    my $other = $c->with(user => 'b')->post('/charges', key => $key, body => '{"secret":"s3cr3t"}')->operation;
    my ($open, $unknown) = doubtful(path => '/parcels');
    my $ids = sub { return join ' ', sort map { $_->{operation} } @{ json_of('list', @_) } };
    is($ids->(), join(' ', sort $mine, $other, $unknown), 'all of them');
    is($ids->('--key', $key), join(' ', sort $mine, $other), "by the client's key, for a question about a bill");
    is($ids->('--key', $key, '--principal', 'b'), $other, 'by key and principal');
    is($ids->('--tenant', 'localhost'), join(' ', sort $mine, $other, $unknown), 'by tenant');
    is($ids->('--tenant', 'elsewhere'), '', 'no other tenant');
    is($ids->('--route', 'parcels.create'), $unknown, 'by route');
    is($ids->('--state', 'unknown'), $unknown, 'by state');
    is($ids->('--state', 'SUCCEEDED', '--limit', '1'), (sort $mine, $other)[1], 'the newest first');
    my ($first) = grep { $_->{operation} eq $mine } @{ json_of('list') };
    is($first->{status}, 200, 'the status is a number');
    ok(!$first->{lapsed} && JSON::PP::is_bool($first->{lapsed}), 'a truth is one');
    my $told = json_of('show', $unknown);
    is($told->{state}, 'UNKNOWN', 'show tells the state');
    is($told->{key}, $open, 'the key');
    is($told->{status}, 500, 'what it was answered');
    is($told->{generation}, 1, 'its generation');
    is($told->{expires}, undef, 'nothing where there is nothing');
    is_deeply($told->{effects}, [], 'no effects');
    unlike(encode_json($told) . done('show for people', 'show', $unknown), qr/s3cr3t/, 'nothing of the request');
    refused('an unknown operation', 1, qr/no such operation/, 'show', $nothing);
    refused('a word that is none', 2, qr/operation id/, 'show', 'x');
    refused('no word', 2, qr/operation id/, 'show');
    refused('a state that is none', 2, qr/--state/, 'list', '--state', 'DONE');
    refused('an option that is none', 2, qr/option/, 'list', '--everything');
};

subtest 'resolve: it succeeded, and this is the answer' => sub {
    my ($key, $operation) = doubtful();
    problem(again($key), 'outcome-unknown', operation => 1);
    my $body = spew($t->root . '/answer.json', '{"charge":"ch_1"}', 0644);
    done('resolved', 'resolve', $operation, '--succeeded', '--reason', 'seen at the provider', '--code', 201,
        '--header', 'Location: /charges/ch_1', '--header', 'Content-Type: application/json', '--body-file', $body);
    ran($t, 0, 'the retry', sub {
        my $res = again($key);
        is($res->status, 201, 'the code that was given');
        is($res->body, '{"charge":"ch_1"}', 'the body');
        is($res->header('Location'), '/charges/ch_1', 'the fields');
        is($res->header('Content-Type'), 'application/json', 'all of them');
        is($res->operation, $operation, 'the operation');
        ok($res->replayed, 'marked');
    });
    my ($event) = grep { $_->{to} eq 'SUCCEEDED' } @{ json_of('show', $operation)->{events} };
    is($event->{actor}, 'ctl:op', 'who said it');
    is($event->{reason}, 'seen at the provider', 'and why');
    is($event->{from}, 'UNKNOWN', 'and of what');
    refused('once only', 1, qr/SUCCEEDED, generation 1, and not UNKNOWN/, 'resolve', $operation, '--failed', '--reason', 'x');
};

subtest 'resolve: with less' => sub {
    my ($key, $operation) = doubtful();
    done('succeeded, without an answer', 'resolve', $operation, '--succeeded', '--reason', 'x');
    my $res = again($key);
    is($res->status, 409, 'there is nothing to replay');
    like($res->json->{type}, qr/response-not-stored/, 'and it says so');
    is($res->json->{outcome}, 'succeeded', 'but it did succeed');
    ($key, $operation) = doubtful();
    done('failed', 'resolve', $operation, '--failed', '--reason', 'x', '--code', '402');
    $res = again($key);
    is($res->status, 402, 'the code alone');
    is($res->body, '', 'with an empty body');
    is(json_of('show', $operation)->{state}, 'FAILED_FINAL', 'final');
    ($key, $operation) = doubtful();
    done('as answered', 'resolve', $operation, '--as-answered', '--reason', 'the error was the truth');
    $res = again($key);
    is($res->status, 500, 'what was answered is the answer');
    is($res->body, '{"oops":1}', 'octet for octet');
    is($res->header('Location'), '/half', 'with its fields');
    ok($res->replayed, 'marked');
    ($key, $operation) = doubtful();
    $t->pg->do("UPDATE idempotency_records SET response_code = NULL, response_headers = NULL, response_body = NULL, response_digest = NULL WHERE operation_id = '$operation'");
    refused('as answered, where nothing is kept', 1, qr/UNKNOWN with a whole response kept/, 'resolve', $operation, '--as-answered', '--reason', 'x');
    problem(again($key), 'outcome-unknown', operation => 1);
};

subtest 'resolve: not executed' => sub {
    $t->backend->behave;
    my ($key, $operation) = doubtful();
    refused('while its owner lives', 1, qr/--owner-is-dead/, 'resolve', $operation, '--not-executed', '--reason', 'x');
    my ($ran) = grep { ($_->{key} // '') =~ /\Q$key\E/ } $t->backend->effects;
    done('where the operator knows that it is dead', 'resolve', $operation, '--not-executed', '--owner-is-dead', '--reason', 'never arrived');
    my $told = json_of('show', $operation);
    is($told->{state}, 'RESERVED', 'free for the next');
    is($told->{generation}, 2, 'the old owner has lost it');
    my $res;
    ran($t, 1, 'the retry', sub { $res = again($key) });
    is($res->status, 200, 'is answered by the backend');
    is($res->operation, $operation, 'under the same operation');
    is($res->json->{env}{IDEMPOTENCY_OPERATION_ID}, $operation, 'the backend sees the same operation');
    is($res->json->{env}{IDEMPOTENCY_GENERATION}, 3, 'in a later generation');
    my $downstream = $res->json->{env}{IDEMPOTENCY_DOWNSTREAM_KEY};
    like($downstream, qr/\A[0-9a-f-]{36}\z/, 'and a downstream key');
    is(json_of('show', $operation)->{downstream_key}, $downstream, 'which the operator is told too, and is the same in every generation');
    is_replay(again($key), $res, 'from then on');
    is_deeply([ map { "$_->{from} $_->{to} $_->{generation}" } @{ json_of('show', $operation)->{events} } ],
        [ 'UNKNOWN RESERVED 2', 'RESERVED EXECUTING 3' ], 'the story in order');
    ($key, $operation) = doubtful();
    $t->httpd->restart;
    done('the owner that was seen last at the settlement is quiet by now', 'resolve', $operation, '--not-executed', '--quiet', '1ms', '--reason', 'x');
};

subtest 'IdempotencyQuiet' => sub {
    my ($key, $operation) = doubtful(path => '/brief');
    my ($long_key, $long) = doubtful(path => '/charges');
    my $silent = sub { # the child is gone without a word, so many seconds ago
        my ($seconds) = @_;
        $t->pg->do("UPDATE idempotency_records SET owner = (SELECT owner FROM idempotency_owners WHERE host = 'gone') WHERE operation_id IN ('$operation', '$long')");
        $t->pg->do("UPDATE idempotency_owners SET seen_at = now() - interval '$seconds s' WHERE host = 'gone'");
    };
    refused('while its child lives', 1, qr/silent long enough/, 'resolve', $operation, '--not-executed', '--reason', 'x');
    $t->pg->do("INSERT INTO idempotency_owners VALUES (gen_random_uuid(), 'gone', 1, now(), now())");
    $silent->(880);
    done('of a route that waits 1 s', 'resolve', $operation, '--not-executed', '--reason', 'x');
    refused('of one that waits 15 minutes, nearly 15 ago', 1, qr/silent long enough/, 'resolve', $long, '--not-executed', '--reason', 'x');
    $silent->(901);
    done('and more than 15 ago', 'resolve', $long, '--not-executed', '--reason', 'x');
    is($t->pg->value("SELECT string_agg(quiet::text, ' ' ORDER BY route) FROM idempotency_records WHERE operation_id IN ('$operation', '$long')"), '00:00:01 00:15:00', 'as the records say');
    is(again($key, '/brief')->status, 200, 'the retry runs');
    is($t->pg->value("SELECT quiet FROM idempotency_records WHERE operation_id = '$operation'"), '00:00:01', 'a takeover has the time of its own route');
    $t->pg->do("DELETE FROM idempotency_owners WHERE host = 'gone'; DELETE FROM idempotency_records WHERE operation_id = '$long'");
};

subtest 'resolve: what is not understood' => sub {
    my ($key, $operation) = doubtful();
    refused('no verdict', 2, qr/say one of/, 'resolve', $operation, '--reason', 'x');
    refused('two verdicts', 2, qr/say one of/, 'resolve', $operation, '--failed', '--succeeded', '--reason', 'x');
    refused('no reason', 2, qr/--reason/, 'resolve', $operation, '--failed');
    refused('a code that is none', 2, qr/--code/, 'resolve', $operation, '--failed', '--reason', 'x', '--code', '42');
    refused('a code with more', 2, qr/--code/, 'resolve', $operation, '--failed', '--reason', 'x', '--code', '400x');
    refused('a field that is never kept', 2, qr/--header/, 'resolve', $operation, '--failed', '--reason', 'x', '--code', '400', '--header', 'Set-Cookie: a=b');
    refused('a body without code', 2, qr/--code/, 'resolve', $operation, '--failed', '--reason', 'x', '--body-file', '/dev/null');
    refused('a file that is not there', 2, qr/nowhere/, 'resolve', $operation, '--failed', '--reason', 'x', '--code', '400', '--body-file', '/nowhere');
    refused('an interval that is none', 2, qr/invalid input syntax/, 'resolve', $operation, '--not-executed', '--reason', 'x', '--quiet', 'soon');
    refused('an unknown operation', 1, qr/no such operation/, 'resolve', $nothing, '--failed', '--reason', 'x');
    refused('an unreachable store', 3, qr/no connection/, '--store', 'postgresql://op@127.0.0.1:1/x', 'show', $operation);
    refused('a password for everybody to see', 2, qr/does not belong/, '--store', 'postgresql://op:pw@127.0.0.1:1/x', 'show', $operation);
    is(json_of('show', $operation)->{state}, 'UNKNOWN', 'nothing has changed');
    done('in the end', 'resolve', $operation, '--failed', '--reason', 'x');
};

subtest 'resolve --all' => sub {
    my @open = map { [ doubtful(path => '/parcels') ] } 1 .. 3;
    my ($other_key, $other) = doubtful();
    my @all = ('resolve', '--all', '--route', 'parcels.create', '--code', '500', '--failed', '--reason', 'the carrier was down');
    my $count = $t->record_count("status = 'UNKNOWN' AND route = 'parcels.create'");
    refused('the count first', 1, qr/\b$count operations of unknown outcome\n.*--yes/, @all);
    is($t->record_count("status = 'UNKNOWN' AND route = 'parcels.create'"), $count, 'and nothing else');
    refused('not those before', 0, qr/\b0 operations/, @all, '--before', '2020-01-01', '--yes');
    refused('a time that is none', 2, qr/invalid input syntax/, @all, '--before', 'when', '--yes');
    refused('not all of everything', 2, qr/at least one of/, 'resolve', '--all', '--failed', '--reason', 'x', '--yes');
    done('all of them', @all, '--yes');
    is($t->record_count("status = 'UNKNOWN' AND route = 'parcels.create'"), 0, 'none is left');
    is(json_of('show', $other)->{state}, 'UNKNOWN', "another route's is");
    like(again($open[0][0], '/parcels')->json->{type}, qr/response-not-stored/, 'a retry learns of it');
};

subtest 'cancel' => sub {
    my ($key, $operation) = doubtful();
    refused('what has begun', 1, qr/UNKNOWN, generation 1, and not RESERVED/, 'cancel', $operation);
    refused('what is not there', 1, qr/no such operation/, 'cancel', $nothing);
    $t->pg->do("UPDATE idempotency_records SET status = 'RESERVED', outcome = NULL, settled_at = NULL, sweep_at = now() + interval '1 day' WHERE operation_id = '$operation'");
    done('what has not', 'cancel', $operation);
    is($t->record_count("operation_id = '$operation'"), 0, 'gone');
    my $told = json_of('show', $operation);
    is($told->{events}[0]{to}, 'NONE', 'its story is left');
    is($told->{events}[0]{actor}, 'ctl:op', 'with who did it');
    ran($t, 1, 'the key', sub { is(again($key)->status, 200, 'may be used again') });
};
$t->allow_pg_log(qr/invalid input syntax for type (?:interval|timestamp)/);
$t->finish;
