package Idem::Postgres;

# A throw-away PostgreSQL cluster: own folder, unix socket, free port on 127.0.0.1, everyone trusted.

use strict;
use warnings;
use IO::Handle;
use IO::Select;
use IPC::Open2 ();
use JSON::PP ();
use Idem::Util;

# new(fsync => 'on', settings => { name => value, ... }, initdb => [options]); started unless start => 0
# new(standby_of => cluster): a streaming replica of it, called `standby` there, which ->promote makes a server of its own
sub new {
    my ($class, %arg) = @_;
    my ($bin) = sort { version($b) <=> version($a) } glob('/usr/lib/postgresql/*/bin');
    my $self = bless {
        bin => $bin // die("PostgreSQL's programs are not under /usr/lib/postgresql\n"),
        root => own_folder('pg'), port => free_port(), user => 'admin', database => 'postgres',
    }, $class;
    return $self->follow($arg{standby_of}) if $arg{standby_of};
    my ($status, $said) = run(cmd => [ "$bin/initdb", '-D', $self->data, '-U', $self->{user}, '-A', 'trust', '-E', 'UTF8',
        '--locale=C', '--no-sync', '--no-instructions', @{ $arg{initdb} || [] } ]);
    die "initdb failed:\n$said" if $status;
    my %setting = (
        listen_addresses => '127.0.0.1', port => $self->{port}, unix_socket_directories => $self->{root},
        fsync => $arg{fsync} // 'on', shared_buffers => '16MB', max_connections => 100, logging_collector => 'off',
        log_line_prefix => '%m [%p] %q%a ', log_min_messages => 'warning', log_statement => 'none',
        %{ $arg{settings} || {} },
    );
    open(my $conf, '>>', $self->data . '/postgresql.conf') or die "postgresql.conf: $!\n";
    print $conf map { "$_ = '$setting{$_}'\n" } sort keys %setting;
    close $conf;
    at_end(sub { $self->cont; $self->stop('immediate') });
    $self->start unless defined $arg{start} && !$arg{start};
    return $self;
}

sub follow {
    my ($self, $primary) = @_;
    my ($status, $said) = run(cmd => [ "$self->{bin}/pg_basebackup", '-D', $self->data, '-X', 'stream', '-c', 'fast', '--no-sync' ],
        env => $primary->env, dir => $self->{root});
    die "pg_basebackup failed:\n$said" if $status;
    open(my $conf, '>>', $self->data . '/postgresql.conf') or die "postgresql.conf: $!\n";
    print $conf "port = $self->{port}\nunix_socket_directories = '$self->{root}'\n",
        "primary_conninfo = 'host=$primary->{root} port=$primary->{port} user=$primary->{user} application_name=standby'\n";
    close $conf;
    spew($self->data . '/standby.signal', '');
    at_end(sub { $self->cont; $self->stop('immediate') });
    return $self->start;
}

# Returns when it is a server that takes writes.
sub promote {
    my ($self) = @_;
    $self->value('SELECT pg_promote(true, 30)') eq 't' or die "it is not promoted\n";
    return 1;
}

sub version { $_[0] =~ m{/(\d+)/bin} ? $1 : 0 }
sub data { "$_[0]{root}/data" }
sub port { $_[0]{port} }
sub socket_dir { $_[0]{root} }
sub user { $_[0]{user} }
sub database { $_[0]{database} }
sub log_file { "$_[0]{root}/log" }
sub log { -e $_[0]->log_file ? slurp($_[0]->log_file) : '' }
sub pid { $_[0]{pid} }

# For DBDParams and for --store; user => another role, host => 'tcp' for 127.0.0.1 in place of the socket.
sub conninfo {
    my ($self, %arg) = @_;
    my $host = ($arg{host} // '') eq 'tcp' ? '127.0.0.1' : $self->{root};
    return sprintf 'host=%s port=%d dbname=%s user=%s connect_timeout=2', $host, $self->{port}, $self->{database},
        $arg{user} // $self->{user};
}

sub url {
    my ($self, %arg) = @_;
    return sprintf 'postgresql://%s@127.0.0.1:%d/%s?connect_timeout=2', $arg{user} // $self->{user}, $self->{port}, $self->{database};
}

# libpq's own environment, as idempotencyctl and psql read it.
sub env {
    my ($self, %arg) = @_;
    return { PGHOST => $self->{root}, PGPORT => $self->{port}, PGUSER => $arg{user} // $self->{user},
        PGDATABASE => $self->{database}, PGCONNECT_TIMEOUT => 5 };
}

sub start {
    my ($self) = @_;
    return if alive($self->{pid});
    $self->{pid} = spawn(cmd => [ "$self->{bin}/postgres", '-D', $self->data ], out => $self->log_file, session => 1,
        dir => $self->{root});
    wait_for(sub { !alive($self->{pid}) or $self->ready }, 30) && alive($self->{pid})
        or die "PostgreSQL does not start:\n" . tail($self->log_file, 20);
    return $self;
}

sub ready {
    my ($self) = @_;
    # The last line of postmaster.pid says when connections are taken; cheaper than a client.
    my $file = $self->data . '/postmaster.pid';
    return 0 unless -e $file && -S "$self->{root}/.s.PGSQL.$self->{port}";
    my @line = split /\n/, eval { slurp($file) } // '';
    return @line >= 8 && $line[0] == $self->{pid} && $line[7] =~ /^(?:ready|standby)/;
}

# stop('fast' | 'smart' | 'immediate')
sub stop {
    my ($self, $mode) = @_;
    my %signal = (smart => 'TERM', fast => 'INT', immediate => 'QUIT');
    end_process($self->{pid}, $signal{ $mode // 'fast' } // die "no such mode: $mode\n", 30);
    $self->{pid} = undef;
}

sub restart {
    my ($self, $mode) = @_;
    $self->stop($mode);
    $self->start;
}

# Every process of the cluster, the postmaster first.
sub processes {
    my ($self) = @_;
    return () unless alive($self->{pid});
    return ($self->{pid}, pids_below($self->{pid}));
}

# The machine loses its database: every process is gone at once.
sub kill9 {
    my ($self) = @_;
    my @all = $self->processes;
    kill KILL => @all;
    waitpid $self->{pid}, 0 if $self->{pid};
    wait_for(sub { !grep { kill 0 => $_ } @all }, 10) or die "PostgreSQL's processes do not end\n";
    $self->{pid} = undef;
}

# The database hangs: it takes connections (the kernel does) and answers nothing.
sub sigstop {
    my ($self) = @_;
    kill STOP => $self->processes;
    $self->{stopped} = 1;
}

sub cont {
    my ($self) = @_;
    kill CONT => $self->processes if delete $self->{stopped};
}

sub psql {
    my ($self, $sql, %arg) = @_;
    my ($status, $said) = run(cmd => [ "$self->{bin}/psql", '-XAtq', '-v', 'ON_ERROR_STOP=1', '-f', '-' ], stdin => "$sql\n",
        env => $self->env(%arg), self => 1, timeout => $arg{timeout});
    die "psql: $said--- in\n$sql\n" if $status;
    return $said;
}

# Run statements for their effect; timeout => seconds where they take more than 60, as for the others.
sub do { $_[0]->psql(@_[ 1 .. $#_ ]); return }

# One SELECT (or … RETURNING): a list of hashes. Numbers are numbers, bytea is \x…, NULL is undef.
sub query {
    my ($self, $sql, %arg) = @_;
    $sql =~ s/;\s*\z//;
    return map { JSON::PP->new->utf8->decode($_) } split /\n/, $self->psql("WITH q AS ($sql) SELECT row_to_json(q) FROM q;", %arg);
}

# The first column of the first row.
sub value {
    my ($self, $sql, %arg) = @_;
    my $said = $self->psql($sql, %arg);
    return $said =~ /^(.*)$/m ? $1 : undef;
}

# A session that stays open, for locks and transactions: ->run($sql) returns what psql printed.
sub session {
    my ($self, %arg) = @_;
    my $env = $self->env(%arg);
    local @ENV{ keys %$env } = values %$env;
    my $pid = IPC::Open2::open2(my $from, my $to, "$self->{bin}/psql", '-XAtq');
    $to->autoflush(1);
    my $session = bless { pid => $pid, from => $from, to => $to, n => 0 }, 'Idem::Postgres::Session';
    at_end(sub { $session->close });
    return $session;
}

package Idem::Postgres::Session;

sub run {
    my ($self, $sql, $seconds) = @_;
    my $mark = sprintf 'done-%d-%d', $$, ++$self->{n};
    print { $self->{to} } "$sql;\n\\echo $mark\n";
    my $select = IO::Select->new($self->{from});
    my $got = '';
    while ($got !~ /^\Q$mark\E\n/m) {
        $select->can_read($seconds // 20) or die "no answer from psql to: $sql\n";
        sysread($self->{from}, $got, 65_536, length $got) or die "psql is gone: $sql\n";
    }
    $got =~ s/^\Q$mark\E\n//m;
    return $got;
}

sub close {
    my ($self) = @_;
    my $pid = delete $self->{pid} or return;
    CORE::close $self->{to};
    Idem::Util::end_process($pid, 'TERM', 5);
}

1;
