# idempotencyctl reconcile: a program asks the provider what became of operations, by handle and by downstream key, and
# the next retries are told. The program is the worked example of conf/examples, and some that misbehave.
use strict;
use warnings;
use HTTP::Tiny;
use Idem::Test;
use IO::Socket::INET;
use JSON::PP;
use Time::HiRes qw(time);

my $t = Idem::Test->new(config => protected('/charges', 'charges.create', 'IdempotencyLease 2s'));
my $c = $t->client;
$t->pg->do('CREATE ROLE op LOGIN IN ROLE idempotency_admin');

# The provider: one line a payment, "state id".
my $folder = own_folder('provider');
my $listen = IO::Socket::INET->new(LocalAddr => '127.0.0.1', LocalPort => 0, Listen => 16) or die "provider: $@";
my $pid = fork // die "fork: $!";
if (!$pid) {
    $SIG{$_} = 'DEFAULT' for qw(INT TERM);
    while (my $client = $listen->accept) {
        my ($path) = (<$client> // '') =~ m{^GET (\S+)} or next;
        while (defined(my $line = <$client>)) { last if $line =~ /^\r?\n/ }
        my ($name) = $path =~ m{^/payments(?:/|\?idempotency_key=)([\w-]+)\z};
        my $file = "$folder/" . ($name // 'none');
        my ($state, $id) = -e $file ? split ' ', slurp($file) : ();
        my $body = $state ? encode_json({ state => $state, id => $id }) : '';
        print $client "HTTP/1.1 " . ($state ? $state eq 'broken' ? '500 Broken' : '200 OK' : '404 Not Found') . "\r\nContent-Length: " . length($body) . "\r\nConnection: close\r\n\r\n$body";
        close $client;
    }
    POSIX::_exit(0);
}
at_end(sub { end_process($pid, 'KILL', 5) });
my $provider = 'http://127.0.0.1:' . $listen->sockport;

sub reconcile {
    my ($program, @more) = @_;
    return run(cmd => [ $t->{ctl}, 'reconcile', '--exec', $program, @more ], env => { %{ $t->pg->env(user => 'op') }, PROVIDER_URL => $provider }, dir => '/');
}
sub state_of { $t->pg->value("SELECT status FROM idempotency_records WHERE operation_id = '$_[0]'") }
sub again { return $c->post('/charges', key => $_[0], body => '{}') }

# One of unknown outcome: { key, operation, downstream }
sub doubtful {
    my %one = (key => fresh_key());
    $t->backend->behave(status => 500);
    $one{operation} = again($one{key})->operation;
    $t->backend->behave;
    my ($status, $said) = run(cmd => [ $t->{ctl}, 'show', $one{operation}, '--json' ], env => $t->pg->env, dir => '/');
    $one{downstream} = decode_json($said)->{downstream_key};
    return \%one;
}
sub begun {
    my ($one, $handle) = @_;
    my $bound = $handle ? "'$handle'" : 'NULL';
    $t->pg->do("INSERT INTO idempotency_effects (tenant_id, operation_id, generation, effect, provider, downstream_key, replayable, handle, begun_at, bound_at)
        SELECT tenant_id, operation_id, 1, 'pay', 'provider', '$one->{downstream}', false, $bound, now(), now() FROM idempotency_records WHERE operation_id = '$one->{operation}';
        UPDATE idempotency_records SET attempts = 1, attempts_open = 1 WHERE operation_id = '$one->{operation}'");
}
sub program { my ($name, $text) = @_; return spew("$folder/$name", "#!/usr/bin/perl\nuse strict; use warnings;\n$text\n", 0755) }

my $example = $t->root . '/reconcile-payments';
spew($example, slurp(source_dir() . '/conf/examples/reconcile-payments'), 0755);

subtest 'the worked example' => sub {
    my %one = map { $_ => doubtful() } qw(handle key declined never busy broken);
    begun($one{handle}, 'pay_1');
    spew("$folder/pay_1", 'paid pay_1');
    begun($one{key});
    spew("$folder/$one{key}{downstream}", 'paid pay_2');
    spew("$folder/$one{declined}{downstream}", 'declined pay_3');
    begun($one{never});
    spew("$folder/$one{busy}{downstream}", 'pending pay_4');
    spew("$folder/$one{broken}{downstream}", 'broken pay_5');
    my ($status, $said) = reconcile($example, '--owner-is-dead');
    is($status, 0, 'ends well') or diag($said);
    is(state_of($one{handle}{operation}), 'SUCCEEDED', 'by the handle');
    is(state_of($one{key}{operation}), 'SUCCEEDED', 'by the downstream key');
    is(state_of($one{declined}{operation}), 'FAILED_FINAL', 'declined');
    is(state_of($one{never}{operation}), 'RESERVED', 'never heard of');
    is(state_of($one{$_}{operation}), 'UNKNOWN', "$_: still unknown") for qw(busy broken);
    like($said, qr/^$one{busy}{operation} still unknown$/m, 'and it says so');
    is($t->pg->value("SELECT count(*) FROM idempotency_effects WHERE ended_at IS NULL"), 0, 'its attempts are closed');
    ran($t, 1, 'the retries', sub {
        my $res = again($one{handle}{key});
        is($res->status, 201, 'are told: succeeded');
        is_deeply($res->json, { id => 'pay_1', state => 'paid' }, 'with the answer');
        is($res->header('Location'), '/payments/pay_1', 'and its fields');
        is(again($one{key}{key})->json->{id}, 'pay_2', 'each its own');
        is(again($one{declined}{key})->status, 402, 'failed');
        problem(again($one{busy}{key}), 'outcome-unknown', operation => 1);
        $res = again($one{never}{key});
        is($res->status, 200, 'what never happened runs');
        is($res->json->{env}{IDEMPOTENCY_DOWNSTREAM_KEY}, $one{never}{downstream}, 'under the same downstream key');
    });
    is($t->pg->value("SELECT reason FROM idempotency_events WHERE operation_id = '$one{handle}{operation}' AND to_status = 'SUCCEEDED'"), 'payment pay_1 is paid', 'the reason is kept');
    spew("$folder/$one{$_}{downstream}", "paid later_$_") for qw(busy broken);
    ($status, $said) = reconcile($example, '--json');
    is($status, 0, 'a second time');
    is_deeply([ sort map { decode_json($_)->{result} } split /\n/, $said ], [ 'resolved', 'resolved' ], 'takes up what was left; as JSON, an object a line');
};

subtest 'while its owner lives' => sub {
    my $one = doubtful();
    my ($status, $said) = reconcile($example);
    is($status, 1, 'refused');
    like($said, qr/owner that was silent long enough/, 'and says why');
    is(state_of($one->{operation}), 'UNKNOWN', 'it stays');
    $t->pg->do("DELETE FROM idempotency_records WHERE operation_id = '$one->{operation}'");
};

subtest 'programs that misbehave' => sub {
    my $one = doubtful();
    my %bad = (
        nothing => [ '', qr/not understood/ ],
        words => [ 'print "yes, it worked";', qr/not understood/ ],
        other => [ 'print q({"verdict":"maybe"});', qr/not understood/ ],
        code => [ 'print q({"verdict":"succeeded","code":99});', qr/not understood/ ],
        text => [ 'print q({"verdict":"succeeded","code":"201"});', qr/not understood/ ],
        alone => [ 'print q({"verdict":"succeeded","body":"x"});', qr/not understood/ ],
        cookie => [ 'print q({"verdict":"succeeded","code":200,"headers":{"Set-Cookie":"a=b"}});', qr/not understood/ ],
        failing => [ 'print q({"verdict":"succeeded"}); exit 1;', qr/the program failed/ ],
        killed => [ 'kill KILL => $$; sleep 5;', qr/the program failed/ ],
        endless => [ '$| = 1; print "x" x 65536 while 1;', qr/said too much/ ],
    );
    for my $name (sort keys %bad) {
        my ($status, $said) = reconcile(program($name, $bad{$name}[0]));
        is($status, 1, "$name: refused");
        like($said, $bad{$name}[1], "$name: says why");
    }
    my $begun = time;
    my ($status, $said) = reconcile(program('hangs', '1 while <STDIN>; sleep 60;'), '--patience', '1');
    is($status, 1, 'one that hangs: refused');
    like($said, qr/did not answer in time/, 'says why');
    cmp_ok(time - $begun, '<', 20, 'and is ended');
    ($status, $said) = reconcile(program('stays', 'print q({"verdict":"succeeded"}); close STDOUT; sleep 60;'), '--patience', '1');
    is($status, 1, 'one that answers and stays: refused');
    like($said, qr/did not end in time/, 'says why');
    ($status, $said) = reconcile(program('drips', '$| = 1; while (1) { print "x"; select undef, undef, undef, 0.2 }'), '--patience', '1');
    is($status, 1, 'one that drips: refused');
    is(state_of($one->{operation}), 'UNKNOWN', 'after all of it, it is unknown');
    ($status, $said) = reconcile("$folder/nowhere");
    is($status, 2, 'one that is not there');
    like($said, qr/--exec.*No such file/, 'says so');
    ($status, $said) = run(cmd => [ $t->{ctl}, 'reconcile' ], env => $t->pg->env, dir => '/');
    is($status, 2, 'none at all');
    my $keep = "$folder/given";
    ($status, $said) = reconcile(program('keeps', qq(open my \$o, '>', '$keep'; print \$o \$_ while <STDIN>; close \$o; print q({"verdict":"still-unknown"});)));
    is($status, 0, 'what a program is given');
    my $given = decode_json(slurp($keep));
    is($given->{operation}, $one->{operation}, 'the operation');
    is($given->{principal}, 'a', 'whose it is');
    is($given->{downstream_key}, $one->{downstream}, 'the downstream key');
    ok(!exists $given->{key}, "not the client's key");
    ($status, $said) = reconcile(program('keeps', qq(open my \$o, '>', '$keep'; print \$o \$_ while <STDIN>; close \$o; print q({"verdict":"still-unknown"});)), '--with-key');
    is(decode_json(slurp($keep))->{key}, $one->{key}, 'unless it is asked for');
    ($status, $said) = reconcile(program('blind', 'close STDIN; print q({"verdict":"failed"});'));
    is($status, 0, 'one that does not read may answer') or diag($said);
    is(state_of($one->{operation}), 'FAILED_FINAL', 'and it counts');
};
$t->finish;
