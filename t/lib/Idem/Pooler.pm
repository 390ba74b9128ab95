package Idem::Pooler;

# PgBouncer in transaction mode before a cluster. It stands in for the cluster where httpd is configured:
# $t->httpd->{pg} = Idem::Pooler->new($t->pg, size => 2).

use strict;
use warnings;
use Idem::Util;
use IO::Socket::INET;

# new(cluster, size => server connections, settings => { name => value })
sub new {
    my ($class, $pg, %arg) = @_;
    my ($program) = grep { -x } qw(/usr/sbin/pgbouncer /usr/bin/pgbouncer) or die "pgbouncer is not installed\n";
    my $self = bless { pg => $pg, port => free_port(), root => own_folder('pooler'), program => $program }, $class;
    my %setting = (listen_addr => '127.0.0.1', listen_port => $self->{port}, unix_socket_dir => '', auth_type => 'trust',
        auth_file => "$self->{root}/users", pool_mode => 'transaction', default_pool_size => $arg{size} // 2, max_client_conn => 200,
        logfile => "$self->{root}/log", server_login_retry => 1, server_round_robin => 1, %{ $arg{settings} || {} });
    spew("$self->{root}/users", join('', map { "\"$_\" \"\"\n" } 'web', $pg->user), 0644);
    spew("$self->{root}/ini", sprintf("[databases]\n%s = host=%s port=%d\n[pgbouncer]\n", $pg->database, $pg->socket_dir, $pg->port)
        . join('', map { "$_ = $setting{$_}\n" } sort keys %setting), 0644);
    at_end(sub { $self->stop });
    return $self->start;
}

sub start {
    my ($self) = @_;
    $self->{pid} = spawn(cmd => [ $self->{program}, "$self->{root}/ini" ], out => "$self->{root}/out", session => 1, dir => $self->{root});
    wait_for(sub { !alive($self->{pid}) or IO::Socket::INET->new(PeerAddr => '127.0.0.1', PeerPort => $self->{port}) }, 10)
        && alive($self->{pid}) or die "pgbouncer does not start:\n" . tail("$self->{root}/out", 10) . tail("$self->{root}/log", 10);
    return $self;
}

sub stop { my ($self) = @_; end_process(delete $self->{pid}, 'QUIT', 10) if $self->{pid} }
sub log { slurp("$_[0]{root}/log") }

sub conninfo {
    my ($self, %arg) = @_;
    return sprintf 'host=127.0.0.1 port=%d dbname=%s user=%s connect_timeout=2', $self->{port}, $self->{pg}->database,
        $arg{user} // $self->{pg}->user;
}

1;
