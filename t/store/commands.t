# Every command of idempotencyctl by one table: what it is told wrong, what the state forbids, a store that is away, an end
# half-way and the second run; JSON of all that only read; progress on a terminal. The list is the tool's own help.
use strict;
use warnings;
use Idem::Driver;
use JSON::PP;

my $pg = migrated();
$pg->do('CREATE ROLE op LOGIN IN ROLE idempotency_admin');
my $tool = out_dir() . '/idempotencyctl';
my $folder = own_folder('commands');
my $journal = "$folder/journal";
mkdir $journal, 0700 or die "$journal: $!\n";
my $request = spew("$folder/request", "POST /x HTTP/1.1\r\nHost: localhost\r\n\r\n", 0644);
my $program = spew("$folder/verdict", qq(#!/bin/sh\ncat >/dev/null\nprintf '{"verdict":"failed","reason":"x","code":402}'\n), 0755);
my $nowhere = 'postgresql://op@127.0.0.1:1/x';
my $nothing = '00000000-0000-7000-8000-000000000000';
my $owner = q('10000000-0000-4000-8000-000000000001');
my @failed_because = ('--failed', '--reason', 'x');

sub tool { my ($user, @command) = @_; return ctl($pg, { user => $user }, @command) }

# A record in this state, alone in its registry; its operation.
my %more = (
    RESERVED => '', EXECUTING => '', UNKNOWN => q(, outcome = 'unknown', settled_at = now(), sweep_at = '-infinity'),
    SUCCEEDED => q(, outcome = 'succeeded', settled_at = now(), expires_at = now() + interval '1 d', tombstone_until = 'infinity'),
    PAST => q(, outcome = 'succeeded', settled_at = now() - interval '2 d', expires_at = now() - interval '1 d', tombstone_until = 'infinity', sweep_at = now() - interval '1 d'),
);
my $d = Idem::Driver->new(pg => $pg);
my $made = 100;
sub add {
    my ($state, $key) = @_;
    my $operation = uuid(++$made);
    $d->call('reserve', key => $key // "k$made", operation => $operation);
    $pg->do(sprintf q(UPDATE idempotency_records SET status = '%s'%s WHERE operation_id = '%s'), $state eq 'PAST' ? 'SUCCEEDED' : $state, $more{$state}, $operation);
    return $operation;
}
sub empty { $pg->do('TRUNCATE idempotency_records, idempotency_events, idempotency_effects, idempotency_aliases, idempotency_shadow; UPDATE idempotency_control SET writer_epoch = 1, alias_version = 0') }
sub only { my ($state, $key) = @_; empty(); return add($state, $key) }
my $tenant; # of the driver's records
sub batch { my ($state) = @_; empty(); add($state, $_) for 'first', 'stop', 'third'; return }
my @identities = map { ("--$_-tenant" => $_, "--$_-principal" => 'p') } qw(from to);
my @from = @identities[ 0 .. 3 ]; # of the old one
only('SUCCEEDED');
$tenant = $pg->value('SELECT tenant_id FROM idempotency_records');

# A command: set_up makes what `good` needs (OP is the operation that it returns), and `then` says what is there afterwards.
# usage: what is said wrong. refused: [ what makes it so, the words, what it says ]. offline: needs no store. reads: changes nothing.
# again: status of a second run after a whole one; one, if the state refuses it.
# half: a set_up with which it has done something when it comes to the record `stop`, and what must have been left then.
my %table = (
    'migrate' => { good => [], usage => [ ['--schema'], ['x'] ], user => $pg->env->{PGUSER},
        refused => [ [ sub { $pg->do('UPDATE idempotency_control SET schema_version = 999 + schema_version'); undef }, [], qr/does not go back/,
            sub { $pg->do('UPDATE idempotency_control SET schema_version = schema_version - 999') } ] ],
        lock => 'SELECT pg_advisory_xact_lock(4993446653023372364)' },
    'status' => { reads => 1, good => [], usage => [ ['x'] ] },
    'list' => { reads => 1, good => [], usage => [ [ '--state', 'DONE' ], [ '--limit', 'x' ] ] },
    'show' => { reads => 1, set_up => sub { only('UNKNOWN') }, good => ['OP'], usage => [ [], ['x'] ], refused => [ [ undef, [$nothing], qr/no such operation/ ] ] },
    'resolve' => { set_up => sub { only('UNKNOWN') }, good => [ 'OP', @failed_because ], again => 1, usage => [ ['OP'], [ 'x', @failed_because ], [ 'OP', '--failed' ] ],
        refused => [ [ undef, [ $nothing, @failed_because ], qr/no such operation/ ], [ sub { only('SUCCEEDED') }, [ 'OP', @failed_because ], qr/SUCCEEDED, generation 1, and not UNKNOWN/ ] ],
        then => q(SELECT string_agg(status, ' ') FROM idempotency_records), is => 'FAILED_FINAL' },
    'resolve --all' => { set_up => sub { only('UNKNOWN') }, good => [ '--before', '2099-01-01', @failed_because, '--yes' ], usage => [ [@failed_because], [ 'OP', '--before', '2099-01-01', @failed_because ] ],
        refused => [ [ sub { only('UNKNOWN') }, [ '--before', '2099-01-01', @failed_because ], qr/--yes/ ] ],
        half => sub { batch('UNKNOWN') }, then => q(SELECT string_agg(DISTINCT status, ' ') FROM idempotency_records), is => 'FAILED_FINAL' },
    'reconcile' => { set_up => sub { only('UNKNOWN') }, good => [ '--exec', $program, '--owner-is-dead' ], usage => [ [], [ '--exec', "$folder/none" ], [ '--exec', $program, '--patience', 'x' ] ],
        refused => [ [ sub { only('UNKNOWN') }, [ '--exec', '/bin/true' ], qr/not understood/ ] ],
        half => sub { batch('UNKNOWN') }, then => q(SELECT string_agg(DISTINCT status, ' ') FROM idempotency_records), is => 'FAILED_FINAL' },
    'cancel' => { set_up => sub { only('RESERVED') }, good => ['OP'], again => 1, usage => [ [], ['x'] ],
        refused => [ [ undef, [$nothing], qr/no such operation/ ], [ sub { only('EXECUTING') }, ['OP'], qr/EXECUTING, generation 1, and not RESERVED/ ] ],
        then => 'SELECT count(*) FROM idempotency_records', is => 0 },
    'sweep' => { set_up => sub { only('PAST') }, good => [], usage => [ ['x'] ], then => 'SELECT status FROM idempotency_records', is => 'EXPIRED' },
    'verify' => { reads => 1, set_up => sub { only('SUCCEEDED') }, good => [], usage => [ ['x'], [ '--after-restore', 'then' ] ],
        refused => [ [ sub { only('SUCCEEDED'); $pg->do('UPDATE idempotency_records SET settled_at = NULL'); undef }, [], qr/1 faults/ ] ] },
    'shadow-report' => { reads => 1, good => [], usage => [ ['x'], [ '--since', 'when' ] ] },
    'epoch show' => { reads => 1, good => [], usage => [ [ '--wait', 'x' ] ] },
    'epoch raise' => { set_up => \&empty, good => [ '--to', '7' ], again => 1, usage => [ [ '--to', 'x' ], ['x'] ], refused => [ [ undef, [ '--to', '1' ], qr/only be raised/ ] ],
        then => 'SELECT writer_epoch FROM idempotency_control', is => 7 },
    'epoch drain' => { set_up => sub { only('EXECUTING'); $pg->do('UPDATE idempotency_control SET writer_epoch = 2') }, good => ['--quarantine'], usage => [ [ '--wait', 'x' ] ],
        refused => [ [ sub { only('EXECUTING'); $pg->do('UPDATE idempotency_control SET writer_epoch = 2'); undef }, [], qr/1 operations of older writers are still running/ ] ],
        then => 'SELECT status FROM idempotency_records', is => 'UNKNOWN' },
    'fingerprint' => { reads => 1, offline => 1, good => [ '--target', '/x' ], usage => [ [], [ '--request', "$folder/none" ], [ '--target', '/x', '--payload', 'x' ] ] },
    'explain' => { reads => 1, set_up => sub { my $operation = only('SUCCEEDED'); $pg->do(q(UPDATE idempotency_records SET recipe = '1 raw host * - -')); return $operation }, good => [ 'OP', '--request', $request ], usage => [ [], ['OP'], [ 'x', '--request', $request ] ],
        refused => [ [ undef, [ $nothing, '--request', $request ], qr/no such operation/ ], [ sub { only('SUCCEEDED') }, [ 'OP', '--request', $request ], qr/recipe is not known/ ] ] },
    'journal list' => { reads => 1, offline => 1, good => [$journal], usage => [ [] ], refused => [ [ undef, ["$folder/none"], qr/none/ ] ] },
    'journal apply' => { good => [$journal], usage => [ [] ], refused => [ [ undef, ["$folder/none"], qr/none/ ] ], lock => 0 },
    'alias list' => { reads => 1, good => [], usage => [ ['x'], [ 'list', 'x' ] ] },
    'alias add' => { set_up => \&empty, good => [ @identities, '--until', '2099-01-01', '--reason', 'x' ], again => 1, usage => [ [], [@identities], [ @identities, '--until', 'x', '--reason', 'x' ] ],
        refused => [ [ undef, [ @identities, '--until', '2000-01-01', '--reason', 'x' ], qr/has passed/ ] ],
        then => 'SELECT count(*) FROM idempotency_aliases', is => 1 },
    'alias remove' => { set_up => sub { empty(); tool(op => 'alias', 'add', @identities, '--until', '2099-01-01', '--reason', 'x'); undef }, good => \@from, again => 1, usage => [ [] ],
        refused => [ [ \&empty, \@from, qr/no such alias/ ] ], then => 'SELECT count(*) FROM idempotency_aliases', is => 0 },
    'scope-version' => { reads => 1, set_up => \&empty, good => [], usage => [ ['x'], [ 'v1', 'v2' ] ] },
    'erase' => { set_up => sub { only('PAST') }, good => [ '--tenant', $tenant ], usage => [ [], ['--now'] ],
        refused => [ [ sub { only('SUCCEEDED') }, [ '--tenant', $tenant ], qr/--now/ ] ],
        then => 'SELECT count(*) FROM idempotency_records', is => 0 },
);

sub op_in { my ($operation, @words) = @_; return map { $_ eq 'OP' ? $operation // $nothing : $_ } @words }
sub words { my ($name) = @_; return split / /, $name }
sub says { my ($said, $name) = @_; like($said, qr/^idempotencyctl: \S/m, "$name: says why"); return }
sub is_json { # one value, or one a line
    my ($said, $name) = @_;
    $said =~ s/^idempotencyctl: .*\n//mg;
    my $json = JSON::PP->new;
    my @values = eval { $json->incr_parse($said) };
    ok(!$@ && $json->incr_text !~ /\S/, $name) or diag("$said$@");
    return scalar @values;
}

# What the help names: each command, and each of its words where it begins with one.
my $help = (tool(op => '--help'))[1];
my (%listed, %options, $command);
for my $line (split /\n/, $help) {
    if ($line =~ /^  ([a-z-]+) ?(.*)/) {
        ($command, my $usage) = ($1, $2);
        my @words = $usage =~ /^[a-z]/ ? map { /^([a-z]+)/ ? "$command $1" : () } split /\s*\|\s*/, $usage : $usage =~ /^--all/ ? "$command --all" : $command;
        $listed{$_} = 1 for @words;
    }
    $options{$command}{$1} = 1 while $command && $line =~ /(--[a-z-]+)/g && $line !~ /^Exit status/;
}
is_deeply([ sort keys %listed ], [ sort keys %table ], 'every command of the help is in the table, and none else');

subtest 'every option of the help is one' => sub {
    for my $name (sort keys %options) {
        for my $option (grep { $_ ne '--json' } sort keys %{ $options{$name} }) {
            my ($status, $said) = tool(op => '--store', $nowhere, $name, $option);
            unlike($said, qr/option that this command does not have/, "$name $option");
        }
    }
};

for my $name (sort keys %table) {
    my $row = $table{$name};
    my $user = $row->{user} // 'op';
    my $set_up = $row->{set_up} || sub { empty(); undef };
    my $after = sub { my ($what) = @_; is($pg->value($row->{then}), $row->{is}, "$what: what it is to leave") if $row->{then} };
    my $fine = sub { my ($status, $what, $said) = @_; is($status, 0, "$what: done") or diag($said) };
    subtest $name => sub {
        my $operation = $set_up->();
        my @good = (words($name), op_in($operation, @{ $row->{good} }));
        for my $wrong ([ @{ $row->{good} }, '--no-such-option' ], @{ $row->{usage} }) {
            my ($status, $said) = tool($user, words($name), op_in($operation, @$wrong));
            is($status, 2, "usage: @$wrong") or diag($said);
            says($said, 'usage');
        }
        my ($status, $said) = tool($user, '--store', $nowhere, @good);
        if ($row->{offline}) {
            is($status, 0, 'needs no store') or diag($said);
        }
        else {
            is($status, 3, 'no store');
            like($said, qr/^idempotencyctl: no connection: /m, 'says so');
        }
        for my $case (@{ $row->{refused} || [] }) {
            my ($make, $words, $like, $clean) = @$case;
            my $other = $make ? $make->() : undef;
            ($status, $said) = tool($user, words($name), op_in($other, @$words));
            is($status, 1, "refused: @$words") or diag($said);
            like($said, $like, 'says why');
            $clean->() if $clean;
        }
        for my $way ($row->{offline} || !($row->{lock} // 1) ? () : ('its session is ended', 'it is killed')) {
            $operation = $set_up->();
            @good = (words($name), op_in($operation, @{ $row->{good} }));
            my $done = interrupted($row, $user, $way, @good);
            ($status, $said) = tool($user, @good);
            $done && $row->{again} ? is($status, $row->{again}, "$way: the state says that it is done") : $fine->($status, "$way: the second run", $said);
            $after->($way);
        }
        $operation = $set_up->();
        @good = (words($name), op_in($operation, @{ $row->{good} }));
        ($status, $said) = tool($user, @good, '--json');
        $fine->($status, 'whole', $said);
        my $values = is_json($said, 'its JSON is some');
        cmp_ok($values, '>', 0, 'and not nothing') if $row->{reads} && $name !~ /^(?:alias|journal) list$/;
        $after->('whole');
        ($status, $said) = tool($user, @good);
        $row->{again} ? is($status, $row->{again}, 'a second time: the state refuses it') : $fine->($status, 'a second time', $said);
        $after->('a second time');
    };
}

# Held at its first look at the registry, where its session is ended or it is killed itself. Has it happened all the same?
# A statement that was sent may still be done after who sent it has died: whole, or not at all.
sub interrupted {
    my ($row, $user, $way, @good) = @_;
    my $rows = sub { $pg->value(q(SELECT coalesce(string_agg(operation_id || status, ' ' ORDER BY operation_id), '') || (SELECT count(*) FROM idempotency_aliases) || (SELECT writer_epoch FROM idempotency_control) FROM idempotency_records)) };
    my $before = $rows->();
    my $session = $pg->session;
    $session->run('BEGIN; ' . ($row->{lock} || 'LOCK TABLE idempotency_records, idempotency_control, idempotency_aliases, idempotency_shadow IN ACCESS EXCLUSIVE MODE'));
    my $out = "$folder/out";
    my $pid = spawn(cmd => [ $tool, @good ], self => 1, env => { %{ $pg->env(user => $user) }, PGDATABASE => $pg->database }, out => $out);
    my $waits = q(SELECT min(pid) FROM pg_stat_activity WHERE application_name = 'idempotencyctl' AND wait_event_type = 'Lock');
    ok(wait_for(sub { $pg->value($waits) }, 15), "$way: at work");
    $way =~ /session/ ? $pg->do("SELECT pg_terminate_backend(($waits))") : kill KILL => $pid;
    waitpid $pid, 0;
    if ($way =~ /session/) {
        is($? >> 8, 3, "$way: exit 3");
        says(slurp($out), $way);
    }
    $session->run('ROLLBACK');
    $session->close;
    ok(wait_for(sub { !$pg->value(q(SELECT count(*) FROM pg_stat_activity WHERE application_name = 'idempotencyctl')) }, 15), "$way: nothing of it is left");
    unlink $out;
    return 0 if $rows->() eq $before;
    isnt($way, 'its session is ended', 'what was ended has changed nothing');
    is($pg->value($row->{then}), $row->{is}, "$way: it is done whole") if $row->{then};
    return 1;
}

# In the middle of many, each in a transaction of its own.
for my $name (grep { $table{$_}{half} } sort keys %table) {
    subtest "$name, half-way" => sub {
        my $row = $table{$name};
        $row->{half}->();
        $pg->do(q(CREATE FUNCTION stop_here() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_advisory_xact_lock(42); RETURN new; END $$;
            CREATE TRIGGER stop_here BEFORE UPDATE ON idempotency_records FOR EACH ROW WHEN (OLD.idem_key = 'stop') EXECUTE FUNCTION stop_here()));
        my $session = $pg->session;
        $session->run('BEGIN; SELECT pg_advisory_xact_lock(42)');
        my @good = (words($name), @{ $row->{good} });
        my $pid = spawn(cmd => [ $tool, @good ], self => 1, env => { %{ $pg->env(user => 'op') }, PGDATABASE => $pg->database });
        ok(wait_for(sub { $pg->value(q(SELECT count(*) FROM pg_stat_activity WHERE application_name = 'idempotencyctl' AND wait_event_type = 'Lock')) }, 15), 'it has come to the second');
        kill KILL => $pid;
        waitpid $pid, 0;
        $pg->do(q(SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'idempotencyctl'));
        $session->run('ROLLBACK');
        $session->close;
        $pg->do('DROP TRIGGER stop_here ON idempotency_records; DROP FUNCTION stop_here()');
        is($pg->value(q(SELECT string_agg(status, ' ' ORDER BY operation_id) FROM idempotency_records)), 'FAILED_FINAL UNKNOWN UNKNOWN', 'the first is done, the others are as they were');
        my ($status, $said) = tool(op => @good);
        is($status, 0, 'the second run') or diag($said);
        is($pg->value($row->{then}), $row->{is}, 'does the rest');
    };
}

subtest 'progress, where somebody looks' => sub {
    my %long = (verify => 'SUCCEEDED', sweep => 'PAST', erase => 'PAST', 'resolve --all' => 'UNKNOWN', reconcile => 'UNKNOWN');
    for my $name (sort keys %long) {
        for my $terminal (1, 0) {
            batch($long{$name});
            my @command = ($tool, words($name), @{ $table{$name}{good} });
            my ($status, $said) = run(cmd => $terminal ? [ 'script', '-qec', join(' ', @command), '/dev/null' ] : \@command, self => 1, dir => '/',
                env => { %{ $pg->env(user => 'op') }, PGDATABASE => $pg->database });
            is($status, 0, "$name: done") or diag($said);
            ($terminal ? \&like : \&unlike)->($said, qr/\r\d+ (?:of \d+ )?\r/, $terminal ? 'a terminal shows how far it is' : 'a file is spared that');
        }
    }
};
done_testing;
