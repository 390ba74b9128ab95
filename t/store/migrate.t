# idempotencyctl migrate and status; what roles get. CONTRACT sections 7 and 10.
use strict;
use warnings;
use Idem::Driver;

my $pg = Idem::Postgres->new;
my $steps = () = glob(source_dir() . '/src/store/schema/[0-9]*.sql');

# What a database has, as text to compare.
sub inventory {
    my ($database) = @_;
    my $was = $pg->{database};
    $pg->{database} = $database;
    my $text = $pg->psql(q(
        SELECT relname, relkind, relacl::text, reloptions::text FROM pg_class WHERE relname LIKE 'idempotency%' ORDER BY 1;
        SELECT proname, prosecdef, proconfig::text, proacl::text FROM pg_proc WHERE proname LIKE 'idempotency%' ORDER BY 1;
        SELECT typname FROM pg_type WHERE typname LIKE 'idempotency%' ORDER BY 1;
        SELECT schema_version, writer_epoch, alias_version, scope_version FROM idempotency_control));
    $pg->{database} = $was;
    return $text;
}

subtest 'a new database' => sub {
    my ($status, $said) = ctl($pg, 'migrate');
    is($status, 0, 'done') or diag($said);
    like($said, qr/^applied step 1, registry\n/, 'says what it did');
    like($said, qr/^the registry has schema version $steps\n/m, 'and where that led');
    my ($control) = $pg->query('SELECT *, octet_length(digest_key) AS octets FROM idempotency_control');
    is("$control->{schema_version} $control->{writer_epoch} $control->{alias_version} $control->{scope_version} $control->{octets}", "$steps 1 0 v1 32", 'the control row');
    my $before = inventory('postgres');
    my $key = $pg->value('SELECT digest_key FROM idempotency_control');
    ($status, $said) = ctl($pg, 'migrate');
    is($status, 0, 'again: done');
    unlike($said, qr/applied/, 'again: nothing was applied');
    is(inventory('postgres'), $before, 'again: nothing changed');
    is($pg->value('SELECT digest_key FROM idempotency_control'), $key, 'the digest key stays');
    is($pg->value(q(SELECT string_agg(rolname, ' ' ORDER BY rolname) FROM pg_roles WHERE rolname LIKE 'idempotency%')),
        'idempotency_admin idempotency_backend idempotency_writer', 'three roles');
    is($pg->value(q(SELECT count(*) FROM pg_roles WHERE rolname LIKE 'idempotency%' AND (rolcanlogin OR rolsuper OR rolcreaterole OR rolbypassrls))), 0, 'that can do nothing by themselves');
    is($pg->value(q(SELECT setconfig::text FROM pg_db_role_setting s JOIN pg_roles r ON r.oid = s.setrole WHERE rolname = 'idempotency_writer')),
        '{"default_transaction_isolation=read committed"}', 'the writer works at read committed');
    $pg->do("CREATE DATABASE second");
    ctl($pg, { database => 'second' }, 'migrate');
    my $second = $pg->{database};
    $pg->{database} = 'second';
    isnt($pg->value('SELECT digest_key FROM idempotency_control'), $key, 'another registry has another digest key');
    $pg->{database} = $second;
};

subtest 'many at once' => sub {
    $pg->do(q(DROP DATABASE second));
    $pg->do("CREATE DATABASE race$_") for 1 .. 3;
    $pg->do('DROP OWNED BY idempotency_writer, idempotency_backend, idempotency_admin');
    $pg->do('DROP ROLE idempotency_writer, idempotency_backend, idempotency_admin');
    my @pids = map {
        my $database = 'race' . (1 + $_ % 3);
        spawn(cmd => [ out_dir() . '/idempotencyctl', 'migrate' ], self => 1, env => { %{ $pg->env }, PGDATABASE => $database }, out => "/tmp/idem-migrate-$$-$_");
    } 0 .. 8;
    my @failed;
    for my $i (0 .. $#pids) {
        waitpid $pids[$i], 0;
        push @failed, slurp("/tmp/idem-migrate-$$-$i") if $?;
        unlink "/tmp/idem-migrate-$$-$i";
    }
    is_deeply(\@failed, [], 'nine migrations of three databases are done');
    is(inventory("race$_"), inventory('race1'), "race$_ is as the others") for 2, 3;
    is($pg->value(q(SELECT count(*) FROM pg_roles WHERE rolname LIKE 'idempotency%')), 3, 'three roles');
    ctl($pg, 'migrate');
};

subtest 'it does not go back' => sub {
    $pg->do('UPDATE idempotency_control SET schema_version = 999');
    my ($status, $said) = ctl($pg, 'migrate');
    is($status, 1, 'refused');
    like($said, qr/^idempotencyctl: the registry has schema version 999, this tool knows $steps: it does not go back$/, 'with the reason');
    $pg->do("UPDATE idempotency_control SET schema_version = $steps");
};

subtest 'a step that fails leaves nothing of itself' => sub {
    $pg->do('CREATE DATABASE broken');
    my $was = $pg->{database};
    $pg->{database} = 'broken';
    $pg->do('CREATE TABLE idempotency_events (x int)');
    my ($status, $said) = ctl($pg, { database => 'broken' }, 'migrate');
    is($status, 3, 'the store refused') or diag($said);
    like($said, qr/SQLSTATE 42P07.*already exists.*\n.*step 1, registry, was not applied/, 'with the reason');
    is($pg->value(q(SELECT count(*) FROM pg_class WHERE relname LIKE 'idempotency%' AND relkind = 'r')), 1, 'nothing was made');
    $pg->do('DROP TABLE idempotency_events');
    is((ctl($pg, { database => 'broken' }, 'migrate'))[0], 0, 'and it can be done then');
    $pg->{database} = $was;
};

subtest 'another schema' => sub {
    my ($status, $said) = ctl($pg, 'migrate', '--schema', 'odd "name"');
    is($status, 0, 'done') or diag($said);
    is($pg->value(q(SELECT count(*) FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace WHERE nspname = 'odd "name"' AND relname = 'idempotency_records')), 1, 'its tables are there');
    $pg->do(q(CREATE ROLE odd LOGIN IN ROLE idempotency_writer; ALTER ROLE odd SET search_path = 'odd "name"'));
    my $d = Idem::Driver->new(pg => $pg, user => 'odd');
    is($d->call('reserve', key => 'k')->{result}, 'OK', 'and work by search_path');
    is($pg->value('SELECT count(*) FROM "odd ""name""".idempotency_records'), 1, 'there');
    is($pg->value('SELECT count(*) FROM public.idempotency_records'), 0, 'and not elsewhere');
};

subtest 'a hosted server' => sub {
    $pg->do('CREATE ROLE tenant LOGIN; CREATE DATABASE hosted OWNER tenant');
    my ($status, $said) = ctl($pg, { user => 'tenant', database => 'hosted' }, 'migrate', '--no-roles');
    is($status, 0, 'done by an ordinary owner') or diag($said);
    unlike($said, qr/roles/, 'says nothing of roles');
    my $was = $pg->{database};
    $pg->{database} = 'hosted';
    is($pg->value(q(SELECT count(*) FROM pg_class WHERE relname = 'idempotency_records' AND relacl IS NOT NULL)), 0, 'grants nothing');
    is(Idem::Driver->new(pg => $pg, user => 'tenant')->call('reserve', key => 'k')->{result}, 'OK', 'its owner can use it');
    $pg->{database} = $was;
    $pg->do('CREATE DATABASE hosted2 OWNER tenant');
    ($status, $said) = ctl($pg, { user => 'tenant', database => 'hosted2' }, 'migrate');
    is($status, 0, 'roles that are there already are only granted to') or diag($said);
};

subtest 'usage' => sub {
    my %said = (
        '' => [ 2, qr/no command/ ], 'help' => [ 0, qr/usage: idempotencyctl .*migrate/s ], '--help' => [ 0, qr/Exit status/ ],
        'migrate --help' => [ 0, qr/usage: idempotencyctl migrate \[--schema NAME\]/ ], 'destroy' => [ 2, qr/destroy: no such command/ ],
        'migrate --frobnicate' => [ 2, qr/an option that this command does not have/ ], 'migrate --schema' => [ 2, qr/--schema: its value is missing/ ],
        'migrate now' => [ 2, qr/one argument too many/ ], 'status --store' => [ 2, qr/--store: URL is missing/ ],
        'status --store host=/nowhere' => [ 3, qr/no connection: / ],
        'status --store postgresql://u:secret@127.0.0.1/x' => [ 2, qr/a password does not belong on a command line/ ],
        '--store=password=secret status' => [ 2, qr/a password does not belong on a command line/ ],
    );
    for my $line (sort keys %said) {
        my ($status, $said) = ctl($pg, split / /, $line);
        is($status, $said{$line}[0], "status of: $line");
        like($said, $said{$line}[1], "output of: $line");
        unlike($said, qr/secret/, 'no secret in it');
    }
    is((ctl($pg, 'status', '--store', $pg->url))[0], 0, 'a URL');
    is((ctl($pg, '--store=' . $pg->conninfo, 'status'))[0], 0, 'a list of parameters');
};

subtest 'status' => sub {
    $pg->do('CREATE ROLE web LOGIN IN ROLE idempotency_writer');
    my $d = Idem::Driver->new(pg => $pg);
    $d->call('reserve', key => $_) for 1 .. 3;
    my ($status, $said) = ctl($pg, 'status', '--json');
    is($status, 0, 'done');
    my $json = JSON::PP->new->decode($said);
    is_deeply($json->{records}, { EXECUTING => 3 }, 'how many are in which state');
    is("$json->{schema_version} $json->{writer_epoch} $json->{owners}", "$steps 1 1", 'versions and owners');
    is($json->{estimated} ? 1 : 0, 0, 'counted');
    $pg->do(q(UPDATE idempotency_records SET status = 'UNKNOWN', settled_at = now(), sweep_at = '-infinity' WHERE idem_key = '2'));
    $pg->do(q(UPDATE pg_class SET reltuples = 200001 WHERE relname = 'idempotency_records'));
    $json = JSON::PP->new->decode((ctl($pg, 'status', '--json'))[1]);
    is($json->{estimated} ? 1 : 0, 1, 'a large table is estimated');
    is($json->{records}{UNKNOWN}, 1, 'and what nobody knows is counted');
    ($status, $said) = ctl($pg, 'status');
    like($said, qr/^writer epoch    1$/m, 'for people too');
    $pg->do('CREATE DATABASE bare');
    ($status, $said) = ctl($pg, { database => 'bare' }, 'status');
    is($status, 3, 'no registry');
    like($said, qr/does not exist/, 'said so');
};

done_testing;
